"""Open MPI, from libopenmpi-dev: only the benchmarks use it."""

_BUILD = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "mpi",
    hdrs = glob(["include/**/*.h"]),
    includes = ["include"],
    linkopts = ["-L{lib}", "-lmpi"],
)
"""

def _openmpi_impl(ctx):
    # pkg-config knows the folder of the installed architecture.
    include = _ask(ctx, "--variable=includedir")
    lib = _ask(ctx, "--variable=libdir")
    ctx.symlink(include, "include")
    ctx.file("BUILD", _BUILD.format(lib = lib))

def _ask(ctx, flag):
    result = ctx.execute(["pkg-config", flag, "ompi-c"])
    if result.return_code != 0:
        fail("Open MPI isn't installed (libopenmpi-dev): run bin/setup. " +
             result.stderr)
    return result.stdout.strip()

openmpi_repository = repository_rule(
    implementation = _openmpi_impl,
    local = True,
)
