"""PyTorch, from the Python of .venv, or of PYTHON_BIN_PATH."""

_BUILD = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "torch",
    srcs = [
        "lib/libc10.so",
        "lib/libtorch.so",
        "lib/libtorch_cpu.so",
        "lib/libtorch_python.so",
    ],
    hdrs = glob(["include/**", "python/**"]),
    includes = [
        "include",
        "include/torch/csrc/api/include",
        "python",
    ],
)
"""

_ASK = """
import os, sysconfig, torch
print(os.path.dirname(torch.__file__))
print(sysconfig.get_path("include"))
"""

def _torch_impl(ctx):
    python = ctx.os.environ.get("PYTHON_BIN_PATH")
    if not python:
        root = ctx.path(Label("//:WORKSPACE")).dirname
        python = root.get_child(".venv").get_child("bin").get_child("python")
    result = ctx.execute([python, "-c", _ASK])
    if result.return_code != 0:
        fail("no PyTorch in %s: run bin/setup, or set PYTHON_BIN_PATH. %s" %
             (python, result.stderr))
    folder, python_include = result.stdout.strip().split("\n")
    ctx.symlink(folder + "/include", "include")
    ctx.symlink(folder + "/lib", "lib")
    ctx.symlink(python_include, "python")
    ctx.file("BUILD", _BUILD)

torch_repository = repository_rule(
    implementation = _torch_impl,
    environ = ["PYTHON_BIN_PATH"],
    local = True,
)
