"""A newer libfabric than the system's, from .venv/libfabric, if it's there.

Only tests use it, by its path: external/newer_libfabric/libfabric.so.1.
"""

_BUILD = """
package(default_visibility = ["//visibility:public"])

filegroup(
    name = "files",
    srcs = glob(["libfabric.so.1"]),
)
"""

def _newer_libfabric_impl(ctx):
    root = ctx.path(Label("//:WORKSPACE")).dirname
    folder = root.get_child(".venv").get_child("libfabric")
    library = folder.get_child("libfabric.so.1")
    if library.exists:
        ctx.symlink(library, "libfabric.so.1")
    ctx.file("BUILD", _BUILD)

newer_libfabric_repository = repository_rule(
    implementation = _newer_libfabric_impl,
    local = True,
)
