#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""The code rules of CONTRIBUTING.md that a program can check.

    tests/tidy.py            checks the whole tree, prints what breaks a rule

A rule of a file takes (path, text) and yields (line, message); a rule of the
tree takes a Tree and yields (path, line, message). tests/tidy_test.py shows,
for each rule, a sample that it must refuse.
"""

import ast
import os
import re
import subprocess
import sys
import tempfile

import build_files
import cpp_text

FUNCTION_LINES = 60
FILE_LINES = 500
TEST_FILE_LINES = 800
COLUMNS = 80
PARAMETERS = 5
VIRTUALS = 10

# The public C header: what it must look like follows from C and from NCCL.
C_API = "ccl/trnccl.h"
SETTINGS = "ccl/base/settings.cc"
SETTINGS_DOC = "docs/settings.md"
# These name what they forbid.
TIDY = ("tests/tidy.py", "tests/tidy_test.py")


def is_cpp(path):
    return path.endswith((".h", ".cc", ".c"))


def is_python(path):
    return path.endswith(".py")


def is_build(path):
    return os.path.basename(path) == "BUILD" or \
        path.endswith((".bzl", ".BUILD"))


def is_script(path):
    return path.startswith(("bin/", ".ci/")) or path.endswith(".sh")


def is_code(path):
    return is_cpp(path) or is_python(path) or is_build(path) or \
        is_script(path)


def is_test(path):
    return path.startswith("tests/") or \
        bool(re.search(r"(^|[/_])(test|conformance)", path))


def is_library(path):
    """What ends up in users' processes."""
    return is_cpp(path) and not is_test(path) and \
        path.startswith(("ccl/", "algorithms/", "transports/"))


def matches(pattern, text):
    """(line, match) of every match."""
    for match in re.finditer(pattern, text, re.MULTILINE):
        yield text.count("\n", 0, match.start()) + 1, match


# --- Rules of a file -------------------------------------------------------


def head(path, text):
    if not (is_cpp(path) or is_python(path) or is_script(path)):
        return
    lines = text.splitlines()
    if lines and lines[0].startswith("#!"):
        lines = lines[1:]
    found = [re.sub(r"^(//|#|/\*| \*) ", "", line) for line in lines[:2]]
    if found != ["SPDX-License-Identifier: Apache-2.0",
                 "Copyright (c) The trnccl Authors"]:
        yield 1, "must open with the two lines of SPDX and copyright"


def header_opening(path, text):
    if not path.endswith(".h") or path == C_API:
        return
    rest = text.splitlines()[2:]
    comment = [line for line in rest[:next(
        (i for i, line in enumerate(rest) if not line.startswith("//")),
        len(rest))] if line.strip("/ ")]
    if len(comment) < 2:
        yield 3, "must open with what it's for, its thread rule, an example"
    if not path.endswith("-inl.h") and "\n#pragma once\n" not in text:
        yield 3, "lacks '#pragma once'"


def columns(path, text):
    if not is_code(path):
        return
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > COLUMNS and "://" not in line:
            yield number, "has %d columns, over %d" % (len(line), COLUMNS)


def file_length(path, text):
    limit = TEST_FILE_LINES if is_test(path) else FILE_LINES
    lines = text.count("\n")
    # A BUILD file is as long as its package is large.
    if is_code(path) and not is_build(path) and lines > limit:
        yield limit, "has %d lines, over %d: split it" % (lines, limit)


def _functions(path, text):
    """(name, first line, last line) of every function."""
    if is_python(path):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield node.name, node.lineno, node.end_lineno
    elif is_cpp(path):
        for scope in cpp_text.scopes(text):
            if scope.kind == "function":
                yield (cpp_text.parameter_list(scope.head)[0], scope.first,
                       scope.last)


def function_length(path, text):
    for name, first, last in _functions(path, text):
        if last - first + 1 > FUNCTION_LINES:
            yield first, "%s has %d lines, over %d" % (
                name, last - first + 1, FUNCTION_LINES)


def _own_declarations(path, text):
    """(line, name, parameters) of functions whose form is ours to choose.

    Not C interfaces, overrides, macros, or definitions that stand apart from
    their class: the declaration inside the class was looked at.
    """
    if not is_cpp(path) or path == C_API:
        return
    for scope in cpp_text.scopes(text):
        if scope.kind not in ("function", "declaration") or scope.extern_c:
            continue
        name, parameters = cpp_text.parameter_list(scope.head)
        if "::" in name or re.match(r"[A-Z][A-Z0-9_]+$|trnccl[A-Z]", name):
            continue
        if re.search(r"\boverride\b", scope.head):
            continue
        yield scope.first, name, cpp_text.split_parameters(parameters)


def parameters(path, text):
    for line, name, found in _own_declarations(path, text):
        if len(found) > PARAMETERS:
            yield line, "%s takes %d parameters, over %d: a struct?" % (
                name, len(found), PARAMETERS)


def bool_parameter(path, text):
    for line, name, found in _own_declarations(path, text):
        if any(re.match(r"(const )?bool\b(?! ?\*)(?! ?\()", p) for p in found):
            yield line, "%s takes a bool: an enum says more at the call" % name


def virtuals(path, text):
    if not is_cpp(path):
        return
    found = cpp_text.scopes(text)
    for scope in found:
        if scope.kind != "class":
            continue
        methods = [s for s in found
                   if s.parent == "class" and s.head.startswith("virtual ")
                   and "~" not in s.head
                   and scope.first <= s.first <= scope.last]
        if len(methods) > VIRTUALS:
            yield scope.first, "%s has %d virtual methods, over %d" % (
                scope.head, len(methods), VIRTUALS)


def no_goto(path, text):
    if is_cpp(path):
        for line, _ in matches(r"\bgoto\b", cpp_text.blank(text)):
            yield line, "goto"


def no_throw(path, text):
    if is_library(path):
        for line, _ in matches(r"\bthrow\b", cpp_text.blank(text)):
            yield line, "throws: return an absl::Status"


def no_conditional_code(path, text):
    if not is_cpp(path) or path == C_API or path.startswith("third_party/"):
        return
    code = cpp_text.blank(text, keep_strings=True)
    highway = path.startswith("ccl/kernels/")
    allowed = []
    for line, match in matches(r"^[ \t]*#[ \t]*(if\w*|el\w+|endif)\b(.*)$",
                               code):
        directive, condition = match.groups()
        if directive.startswith("if"):
            allowed.append(highway and "HWY_" in condition)
        if not allowed or not allowed[-1]:
            yield line, "#%s: code that's compiled only sometimes" % directive
        if directive == "endif" and allowed:
            allowed.pop()


def no_absl_mutex(path, text):
    if is_cpp(path):
        for line, match in matches(r"\babsl::(Mutex|CondVar|Notification)\b",
                                   cpp_text.blank(text)):
            yield line, "%s is blind to TSan here: ccl/base/mutex.h" % (
                match.group(0))


def no_getenv(path, text):
    if is_library(path) and path != SETTINGS:
        for line, _ in matches(r"\bgetenv\b", cpp_text.blank(text)):
            yield line, "reads the environment: make it a row of " + SETTINGS


# The one that drives progress, and those of non-blocking inits.
WITH_THREADS = ("ccl/progress/", "ccl/capi/")


def no_thread(path, text):
    if is_library(path) and not path.startswith(WITH_THREADS):
        for line, match in matches(
                r"\b(std::(jthread|async|thread(?!::))|pthread_create)\b",
                cpp_text.blank(text)):
            yield line, "%s: threads stand in %s only" % (
                match.group(0), " and ".join(WITH_THREADS))


def words(path, text):
    if not is_code(path) or path in TIDY:
        return
    for line, match in matches(r"(?i)\b\w*channel\w*", text):
        if match.group(0).lower() != "channels_last":  # torch's memory format
            yield line, "'%s': every library means something else by it" % (
                match.group(0))
    for line, match in matches(r"\b(TODO|FIXME|XXX)\b", text):
        yield line, "%s: do it, or file it" % match.group(0)


def machine_paths(path, text):
    if path in TIDY:
        return
    for line, match in matches(
            r"(?<![\w.~$})/-])/(work|farm|root|home|Users)/\w+", text):
        yield line, "%s is a path of one machine" % match.group(0)


_CPP_CODE = [
    r"[\w:.\[\]>*-]+(\(.*\))+;$",  # a call
    r"(const |auto |static |std::|return |[\w:<>*&]+ )*[\w.\[\]>-]+"
    r" [-+*/|&^]?= [^=].*;$",  # an assignment
    r"(if|for|while|switch) \(.*\)( \{|;)?$",
    r"(\} )?else( if \(.*\))?( \{)?$",
    r"[{}]+;?$",
    r"#\s*(include|define|if|endif|pragma)\b",
    r"(return|break|continue)\b[^.,]*;$",
]
_PYTHON_CODE = [
    r"[\w.]+\(.*\)$",
    r"\w[\w.\[\]]* [-+*/|&]?= \S+$",
    r"(import [\w.]+|from [\w.]+ import .*)$",
    r"(def|class) \w+.*:$",
]


def commented_out_code(path, text):
    """Examples are told from dead code by their deeper indent."""
    if is_cpp(path):
        notes, patterns = cpp_text.comments(text), _CPP_CODE
    elif is_python(path):
        notes = ((line, match.group(1)) for line, match in
                 matches(r"^[ \t]*#(?!!)(.*)$", text))
        patterns = _PYTHON_CODE
    else:
        return
    for line, note in notes:
        if note.startswith("  "):
            continue
        if any(re.match(p, note.strip()) for p in patterns):
            yield line, "looks like code that was commented out"


FILE_RULES = [
    head, header_opening, columns, file_length, function_length, parameters,
    bool_parameter, virtuals, no_goto, no_throw, no_conditional_code,
    no_absl_mutex, no_getenv, no_thread, words, machine_paths,
    commented_out_code,
]


# --- Rules of the tree -----------------------------------------------------


class Tree:
    """The texts of all files, and what the BUILD files say of them."""

    def __init__(self, texts, targets):
        self.texts = texts
        self.targets = targets


def load(top):
    texts = {}
    for path in build_files.files(top):
        try:
            texts[path] = build_files.read(top, path)
        except UnicodeDecodeError:
            pass  # A picture, or the like.
    return Tree(texts, build_files.targets(top))


def in_build(tree):
    headers = {h for t in tree.targets for h in t.hdrs}
    sources = {s for t in tree.targets for s in t.srcs}
    for path in tree.texts:
        if path.endswith(".h") and path not in headers:
            yield path, 1, "stands in the hdrs of no cc_library"
        if path.endswith((".cc", ".c")) and path not in sources:
            yield path, 1, "stands in the srcs of no target"


def settings(tree):
    """Every setting that's named anywhere is in the table, and in its doc."""
    table = set(re.findall(r'"(TRNCCL_[A-Z0-9_]+)"',
                           tree.texts.get(SETTINGS, "")))
    documented = set(re.findall(r"\bTRNCCL_[A-Z0-9_]+\b",
                                tree.texts.get(SETTINGS_DOC, "")))
    for name in sorted(table - documented):
        yield SETTINGS, 1, "%s isn't documented in %s" % (name, SETTINGS_DOC)
    for path, text in tree.texts.items():
        if is_test(path):
            continue
        if is_cpp(path):
            pattern = r'"(TRNCCL_[A-Z0-9_]+)["=]'
            text = cpp_text.blank(text, keep_strings=True)
        elif is_python(path) or is_script(path):
            pattern = r"\b(TRNCCL_[A-Z0-9_]+)\b"
        else:
            continue
        for line, match in matches(pattern, text):
            if match.group(1) not in table | {"TRNCCL_NAME"}:
                yield path, line, "%s isn't in the table of %s" % (
                    match.group(1), SETTINGS)


def clang_format(tree):
    """Runs over copies, so that samples can be judged like the tree."""
    paths = [p for p in tree.texts if is_cpp(p)]
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            copy = os.path.join(folder, path)
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            with open(copy, "w", encoding="utf-8") as file:
                file.write(tree.texts[path])
        run = subprocess.run(
            ["clang-format-14", "--style=Google", "--dry-run", "-Werror",
             "--ferror-limit=1", *paths],
            cwd=folder, stderr=subprocess.PIPE, text=True, check=False)
    found = re.findall(r"^([^:\n]+):(\d+):\d+: error", run.stderr,
                       re.MULTILINE)
    for path, line in found:
        yield path, int(line), "isn't as clang-format-14 writes it: bin/format"
    if run.returncode != 0 and not found:
        yield paths[0], 1, "clang-format-14 failed: " + run.stderr


TREE_RULES = [in_build, settings, clang_format]
RULES = FILE_RULES + TREE_RULES


def check(tree, rule):
    """What breaks one rule, as 'path:line: message'."""
    if rule in TREE_RULES:
        found = list(rule(tree))
    else:
        found = [(path, line, message) for path, text in tree.texts.items()
                 for line, message in rule(path, text)]
    return ["%s:%d: %s" % f for f in sorted(found)]


def main():
    tree = load(build_files.root())
    found = [line for rule in RULES for line in check(tree, rule)]
    print("\n".join(found) or "tidy: %d files keep the rules" %
          len(tree.texts))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
