#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""What must compile, and what must not, under the build's own flags.

Every header compiles alone. Where a source includes the header before anything
else, the build has shown that already; the others are compiled here.
"""

import concurrent.futures
import os
import re
import shlex
import subprocess
import unittest

import build_files
import cpp_text
import junit

TOP = build_files.root()


def flags(bazelrc):
    """The compiler's flags of the plain build, as .bazelrc has them."""
    found = []
    for line in bazelrc.splitlines():
        if line.startswith("build "):
            found += re.findall(r"--(?:copt|cxxopt)=(\S+)", line)
    return found


def mpi_includes():
    run = subprocess.run(["pkg-config", "--cflags", "ompi-c"], text=True,
                         stdout=subprocess.PIPE, check=True)
    return shlex.split(run.stdout)


def compile_text(text, extra=(), language="c++", arguments=None):
    """Compiles `text`; returns the compiler's complaints, or ''."""
    if arguments is None:
        arguments = flags(build_files.read(TOP, ".bazelrc"))
    compiler = "g++" if language == "c++" else "gcc"
    run = subprocess.run(
        [compiler, "-fsyntax-only", *arguments, *extra, "-x", language, "-I",
         TOP, "-"],
        input=text, text=True, stderr=subprocess.PIPE, check=False)
    return "" if run.returncode == 0 else run.stderr or "failed"


def first_include(text):
    match = re.search(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^">]+)[">]',
                      cpp_text.blank(text, keep_strings=True), re.MULTILINE)
    return match and match.group(1)


def headers_to_compile():
    """The headers that no built source includes first."""
    targets = build_files.targets(TOP)
    headers = {h for t in targets for h in t.hdrs
               if h.endswith(".h") and not h.endswith("-inl.h")}
    sources = {s for t in targets for s in t.srcs if s.endswith(".cc")}
    shown = {first_include(build_files.read(TOP, s)) for s in sources
             if os.path.exists(os.path.join(TOP, s))}
    # torch's headers take half a minute, and its binding is built anyway.
    return sorted(h for h in headers - shown
                  if not h.startswith("bindings/torch/"))


DROPPED = """
#include "absl/status/status.h"
#include "absl/status/statusor.h"
absl::Status Try();
absl::StatusOr<int> TryForInt();
void Use() { %s }
"""


class Status(unittest.TestCase):

    def test_dropped_does_not_compile(self):
        for dropped in ("Try();", "TryForInt();"):
            complaint = compile_text(DROPPED % dropped)
            self.assertIn("unused-result", complaint, dropped)

    def test_looked_at_compiles(self):
        self.assertEqual(compile_text(
            DROPPED % "if (!Try().ok() || !TryForInt().ok()) return;"), "")


class Warnings(unittest.TestCase):

    def test_are_errors(self):
        for text in ("void F() { int unused; }",
                     "int F(int a) { { int a = 1; return a; } }",
                     "bool F(int a, unsigned b) { return a < b; }"):
            self.assertIn("-Werror", compile_text(text), text)


class Headers(unittest.TestCase):

    def test_a_header_that_lacks_an_include_is_refused(self):
        self.assertIn("string", compile_text("std::string Name();\n"))

    def test_every_header_compiles_alone(self):
        includes = mpi_includes()
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            complaints = pool.map(
                lambda h: compile_text('#include "%s"\n' % h, includes),
                headers_to_compile())
            self.assertEqual("\n".join(c for c in complaints if c), "")

    def test_the_public_one_is_plain_c(self):
        text = '#include "ccl/trnccl.h"\nint main(void) { return 0; }\n'
        for standard in ("c99", "c11", "c17"):
            self.assertEqual(compile_text(text, language="c", arguments=[
                "-std=" + standard, "-Wall", "-Wextra", "-Wpedantic",
                "-Wstrict-prototypes", "-Werror"]), "", standard)

    def test_the_public_one_is_cpp_of_any_age(self):
        text = '#include "ccl/trnccl.h"\n'
        for standard in ("c++11", "c++17", "c++20"):
            self.assertEqual(compile_text(text, arguments=[
                "-std=" + standard, "-Wall", "-Wextra", "-Wpedantic",
                "-Werror"]), "", standard)


if __name__ == "__main__":
    junit.main()
