# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""pip install .: builds the C++ part with Bazel, for the PyTorch at hand."""

import pathlib
import shutil
import subprocess
import sys

import setuptools
from setuptools.command.build_ext import build_ext

_ROOT = pathlib.Path(__file__).resolve().parent
_TARGET = "//bindings/torch/trnccl:_C.so"


class BazelBuild(build_ext):
    """One extension, which Bazel makes."""

    def build_extension(self, ext: setuptools.Extension) -> None:
        import torch

        subprocess.run(
            ["bazel", "build", _TARGET,
             f"--repo_env=PYTHON_BIN_PATH={sys.executable}"],
            cwd=_ROOT, check=True)
        folder = pathlib.Path(self.get_ext_fullpath(ext.name)).parent
        folder.mkdir(parents=True, exist_ok=True)
        built = _ROOT / "bazel-bin" / "bindings" / "torch" / "trnccl" / "_C.so"
        target = folder / "_C.so"
        target.unlink(missing_ok=True)
        shutil.copy(built, target)
        target.chmod(0o755)
        (folder / "_build.py").write_text(
            '"""What the extension was built for."""\n\n'
            f'TORCH = "{torch.__version__.split("+")[0]}"\n')


# What an earlier build left there would get into the wheel.
shutil.rmtree(_ROOT / "build", ignore_errors=True)
setuptools.setup(ext_modules=[setuptools.Extension("trnccl._C", sources=[])],
                 cmdclass={"build_ext": BazelBuild})
