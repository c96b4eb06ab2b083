# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Reads the tree: which files there are, and what BUILD files say of them.

A BUILD file is Python enough to be executed with every rule replaced by one
that notes its arguments. Globs aren't expanded but for the package's own
files, and `select` gives the union of its branches.
"""

import collections
import fnmatch
import os

Target = collections.namedtuple(
    "Target", "package name kind srcs hdrs deps visibility testonly")

_SKIPPED = {".git", ".venv", "__pycache__", "build", "dist", "results"}


def root():
    """The top of the real tree, also when run from Bazel's links to it."""
    return os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def files(top):
    """All files of the tree, relative to `top`; not what tools leave there."""
    found = []
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(
            f for f in folders
            if f not in _SKIPPED and not f.startswith("bazel-")
            and not f.endswith(".egg-info"))
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), top)
            # In a second work tree of git .git is a file.
            if name not in _SKIPPED and not os.path.islink(
                    os.path.join(top, path)):
                found.append(path)
    return found


def read(top, path):
    with open(os.path.join(top, path), encoding="utf-8") as file:
        return file.read()


class _Package:
    """Executes one BUILD text and keeps its targets."""

    def __init__(self, package, siblings):
        self.package = package
        self.siblings = siblings
        self.targets = []
        self.visibility = []

    def note(self, kind):
        def rule(*_, **attributes):
            if kind == "package":
                self.visibility = attributes.get("default_visibility", [])
            elif "name" in attributes:
                self.targets.append(self.target(kind, attributes))
            return []
        return rule

    def target(self, kind, attributes):
        def paths(key):
            return [os.path.join(self.package, f.lstrip(":"))
                    for f in attributes.get(key) or []
                    if not f.startswith(("//", "@"))]

        deps = list(attributes.get("deps") or [])
        deps += attributes.get("implementation_deps") or []
        return Target(
            self.package, attributes["name"], kind, paths("srcs"),
            paths("hdrs") + paths("textual_hdrs"),
            [absolute(d, self.package) for d in deps],
            attributes.get("visibility", self.visibility),
            bool(attributes.get("testonly")) or kind.endswith("_test"))

    def glob(self, include, exclude=(), **_):
        return [f for f in self.siblings
                if any(fnmatch.fnmatch(f, p) for p in include)
                and not any(fnmatch.fnmatch(f, p) for p in exclude)]


class _Names(dict):
    """Globals in which every unknown name is a rule that notes its use."""

    def __init__(self, package):
        super().__init__(
            glob=package.glob, dict=dict, len=len, list=list, range=range,
            str=str, load=lambda *_, **__: None,
            select=lambda branches: sum(
                (list(b or []) for b in branches.values()), []))
        self["__builtins__"] = {}
        self.package = package

    def __missing__(self, name):
        return self.package.note(name)


def absolute(label, package):
    """':x' and '//a' spelled out as '//a:x'; '@repo' as it is."""
    if label.startswith("@"):
        return label
    if label.startswith(":"):
        return "//%s%s" % (package, label)
    if not label.startswith("//"):
        return "//%s:%s" % (package, label)
    if ":" not in label:
        return "%s:%s" % (label, label.rsplit("/", 1)[-1])
    return label


def parse(package, text, siblings=()):
    """The targets of one BUILD text."""
    noted = _Package(package, siblings)
    exec(compile(text, package + "/BUILD", "exec"), _Names(noted))
    return noted.targets


def targets(top):
    """The targets of every BUILD file of the tree, third_party's apart."""
    paths = files(top)
    found = []
    for path in paths:
        package, name = os.path.split(path)
        if name in ("BUILD", "BUILD.bazel") and \
                not package.startswith("third_party"):
            siblings = [os.path.relpath(p, package or ".") for p in paths
                        if p.startswith(package + "/") or not package]
            found += parse(package, read(top, path), siblings)
    return found
