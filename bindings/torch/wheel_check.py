#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""The wheel, in an environment that has nothing else but PyTorch.

Run by bin/test with the Python of .venv, and not by Bazel: pip has Bazel build
the wheel. PyTorch isn't installed anew but lent by .venv.
"""

import glob
import os
import pathlib
import subprocess
import sys
import sysconfig
import tempfile
import unittest
import venv
import zipfile

_ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(_ROOT / "tests"))

import junit  # noqa: E402

_JOB = """
import torch
import torch.distributed as dist

dist.init_process_group("neuron")
tensor = torch.full((5,), float(dist.get_rank() + 1))
dist.all_reduce(tensor)
assert tensor.tolist() == [3.0] * 5, tensor
import trnccl
assert trnccl.__file__.startswith(@folder@), trnccl.__file__
assert trnccl.version() == "0.1.0", trnccl.version()
dist.destroy_process_group()
"""


def _run(*command, **environment):
    """Its output; nothing of this process's environment leads to trnccl."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME")
            if name in os.environ}
    done = subprocess.run(command, env=kept | environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=900)
    assert done.returncode == 0, (command, done.stdout)
    return done.stdout


class Wheel(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = cls.folder.name
        _run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet",
             "--no-build-isolation", "--wheel-dir", path, str(_ROOT))
        (cls.wheel,) = glob.glob(path + "/trnccl-*.whl")
        cls.python = path + "/venv/bin/python"
        venv.create(path + "/venv", with_pip=True)
        _run(cls.python, "-m", "pip", "install", "--no-deps", "--quiet",
             cls.wheel)
        cls.site = _run(cls.python, "-c", "import sysconfig;"
                        "print(sysconfig.get_path('purelib'))").strip()
        with open(cls.site + "/lent.pth", "w", encoding="utf-8") as file:
            file.write(sysconfig.get_path("purelib") + "\n")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_carries_what_it_needs(self):
        names = set(zipfile.ZipFile(self.wheel).namelist())
        for name in ("__init__.py", "_C.so", "_C.pyi", "py.typed", "_build.py"):
            self.assertIn("trnccl/" + name, names)

    def test_runs_a_job(self):
        job = os.path.join(self.folder.name, "job.py")
        with open(job, "w", encoding="utf-8") as file:
            file.write(_JOB.replace("@folder@", repr(self.site)))
        _run(self.python, "-m", "torch.distributed.run", "--nproc-per-node",
             "2", "--standalone", job, OMP_NUM_THREADS="1")

    def test_loads_no_shared_object_before_a_group_is_made(self):
        _run(self.python, "-c", "import sys, torch, torch.distributed as dist;"
             "assert 'trnccl' in sys.modules;"
             "assert 'trnccl._C' not in sys.modules;"
             "assert dist.Backend.default_device_backend_map['cpu'] == 'gloo';"
             "assert dist.is_backend_available('neuron')")

    def test_may_be_imported_before_pytorch(self):
        _run(self.python, "-W", "error::UserWarning", "-c",
             "import trnccl, torch.distributed as dist;"
             "assert dist.is_backend_available('neuron')")

    def test_says_which_pytorch_it_was_built_for(self):
        path = self.site + "/trnccl/_build.py"
        with open(path, encoding="utf-8") as file:
            kept = file.read()
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write('TORCH = "2.99.0"\n')
            said = _run(self.python, "-c", """
import torch.distributed as dist
try:
    dist.init_process_group("neuron", store=dist.HashStore(), rank=0,
                            world_size=1)
except RuntimeError as error:
    print(error)
""")
        finally:
            with open(path, "w", encoding="utf-8") as file:
                file.write(kept)
        self.assertIn("built for PyTorch 2.99.0", said)

    def test_a_broken_package_does_not_break_pytorch(self):
        path = self.site + "/trnccl/_mends.py"
        os.rename(path, path + ".away")
        try:
            said = _run(self.python, "-c", "import torch; print(torch.ones(1))")
        finally:
            os.rename(path + ".away", path)
        self.assertIn("tensor([1.])", said)
        self.assertIn("aren't registered", said)


if __name__ == "__main__":
    junit.main()
