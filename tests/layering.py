#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Which package may use which: the table of DESIGN.md, section 2, checked.

    tests/layering.py        checks the whole tree, prints forbidden edges

Bazel's visibility (the package_groups of the root BUILD) refuses most of these
when a target is built. This refuses them for single files as well, sees what
Bazel can't (system headers), and would notice a visibility that was widened.
An edge is an #include line, or a dep in a BUILD file.
"""

import re
import sys

import build_files
import cpp_text

# A file or target belongs to the first layer whose pattern its path matches.
# A target //a/b:c has the path a/b/c.
LAYERS = [
    ("base", r"ccl/base/"),
    ("kernels", r"ccl/kernels/"),
    ("api", r"ccl/(lib)?(trnccl|c?api)(_\w*test)?\b"),
    ("transport_set", r"ccl/transport_set\b"),
    ("core", r"ccl/"),
    ("algorithms", r"algorithms/"),
    ("interface", r"transports/(conformance/|[^/]*$)"),
    ("simulated", r"transports/sim/"),
    ("transport", r"transports/"),
    ("binding", r"bindings/\w+/"),
    ("example", r"examples/"),
    ("tests", r"tests/"),
]

# What isn't ours, by the header's name or the label of its repository.
FOREIGN = [
    ("absl", r"absl/|@absl"),
    ("highway", r"hwy/|@highway"),
    ("hwloc", r"hwloc(\.h|/)|@hwloc"),
    ("crypto", r"openssl/|@openssl"),
    ("libfabric", r"rdma/|@libfabric"),
    ("libnrt", r"(nrt|ndl)[/_.]|@\w*nrt"),
    ("mpi", r"mpi\.h|@openmpi"),
    ("torch", r"(torch|ATen|c10|pybind11)/|Python\.h|@(pytorch|torch)"),
    ("gtest", r"(gtest|gmock)/|@googletest"),
    ("benchmark", r"benchmark/|@google_benchmark"),
]

_BELOW_CORE = {"base", "absl"}
_CORE = _BELOW_CORE | {"core", "algorithms", "interface", "kernels",
                       "transport_set", "hwloc", "crypto"}

# Layer: what it may use, itself included.
ALLOWED = {
    "base": _BELOW_CORE,
    "kernels": _BELOW_CORE | {"kernels", "highway"},
    "algorithms": _BELOW_CORE | {"algorithms"},
    "interface": _BELOW_CORE | {"interface"},
    "simulated": _BELOW_CORE | {"interface", "simulated"},
    "transport": _BELOW_CORE | {"interface", "transport"},
    "transport_set": _CORE | {"transport"},
    "core": _CORE,
    "api": _CORE | {"api"},
    "binding": _BELOW_CORE | {"api", "binding"},
    "example": {"api", "example"},
    "tests": _CORE | {"api", "transport", "simulated", "tests"},
}

# What one place alone may use.
ONLY_IN = {
    "libfabric": r"transports/fabric/",
    "libnrt": r"transports/neuron/",
    "mpi": r"bindings/|examples/",
    "torch": r"bindings/|examples/",
}

# What tests may use beyond their layer.
TESTS_TOO = {"gtest", "benchmark"}
# Tests of the core drive it over concrete transports.
CORE_TESTS_TOO = {"transport", "simulated"}


def layer(path):
    """The layer of a path of this tree, or None."""
    for name, pattern in LAYERS:
        if re.match(pattern, path):
            return name
    return None


def foreign(name):
    """Whose a system header or an outside label is, or None: the system's."""
    for owner, pattern in FOREIGN:
        if re.match(pattern, name):
            return owner
    return None


def _folder(path):
    return "/".join(path.split("/")[:2])


def refusal(source, used, is_test=False):
    """Why path `source` may not use `used` (a path, a system header or an
    outside label); None if it may."""
    user = layer(source)
    theirs = layer(used) or foreign(used)
    if user is None or theirs is None:
        return None
    if theirs in ONLY_IN:
        if re.match(ONLY_IN[theirs], source):
            return None
        return "%s is only for %s" % (theirs, ONLY_IN[theirs])
    allowed = ALLOWED[user]
    if is_test:
        allowed = allowed | TESTS_TOO
        if user in ("core", "api"):
            allowed = allowed | CORE_TESTS_TOO
    if theirs not in allowed:
        return "%s may not use %s" % (user, theirs)
    if user == theirs and user in ("transport", "binding") and \
            _folder(source) != _folder(used):
        return "one %s may not use another" % user
    return None


def _label_path(label):
    """//a/b:c as a/b/c; an outside label as it is."""
    return label.lstrip("/").replace(":", "/") if label.startswith("//") \
        else label


def _named(target, package):
    """True where a BUILD file opens a target to one package by name: an extra
    edge that was decided on."""
    return target is not None and \
        "//%s:__pkg__" % package in target.visibility


def check(texts, targets):
    """All forbidden edges of a tree, as 'where: why'."""
    by_label = {"//%s:%s" % (t.package, t.name): t for t in targets}
    owners = {f: t for t in targets for f in t.srcs + t.hdrs}
    found = []
    for path, text in texts.items():
        if not path.endswith((".h", ".cc", ".c")):
            continue
        owner = owners.get(path)
        package = path.rpartition("/")[0]
        for line, used in cpp_text.includes(text):
            why = refusal(path, used, owner is not None and owner.testonly)
            if why and not _named(owners.get(used), package):
                found.append("%s:%d: includes %s: %s" % (path, line, used,
                                                         why))
    for label, target in by_label.items():
        for dep in target.deps:
            why = refusal(_label_path(label), _label_path(dep),
                          target.testonly)
            if why and not _named(by_label.get(dep), target.package):
                found.append("%s: depends on %s: %s" % (label, dep, why))
    return sorted(found)


def main():
    top = build_files.root()
    texts = {p: build_files.read(top, p) for p in build_files.files(top)
             if p.endswith((".h", ".cc", ".c"))}
    found = check(texts, build_files.targets(top))
    print("\n".join(found) or "layering: %d files keep to it" % len(texts))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
