#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""What must compile, and what must not, under the build's own flags.

Clang checks the lock annotations, which g++ ignores. Every header compiles
alone. Where a source includes the header before anything
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
    # As Bazel has them: Open MPI's headers don't keep our rules on warnings.
    return shlex.split(run.stdout.replace("-I", "-isystem "))


def run_compiler(compiler, text, arguments, language="c++"):
    """Compiles `text`; returns the compiler's complaints, or ''."""
    run = subprocess.run(
        [compiler, "-fsyntax-only", *arguments, "-x", language, "-I", TOP,
         "-"],
        input=text, text=True, stderr=subprocess.PIPE, check=False)
    return "" if run.returncode == 0 else run.stderr or "failed"


def compile_text(text, extra=()):
    return run_compiler(
        "g++", text, flags(build_files.read(TOP, ".bazelrc")) + list(extra))


def check_locks(text, extra=()):
    return run_compiler("clang++-14", text, [
        "-std=c++20", "-Wthread-safety", "-Werror=thread-safety", *extra])


def in_parallel(function, arguments):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return "\n".join(c for c in pool.map(function, arguments) if c)


def sources():
    """(path, text, included headers in order) of every built source. Not of
    the torch binding: its headers take half a minute each."""
    paths = {s for t in build_files.targets(TOP) for s in t.srcs
             if s.endswith(".cc") and not s.startswith("bindings/torch/")}
    for path in sorted(paths):
        if os.path.exists(os.path.join(TOP, path)):
            text = build_files.read(TOP, path)
            yield path, text, [h for _, h in cpp_text.includes(text)]


def headers_to_compile():
    """The headers that no built source includes first."""
    headers = {h for t in build_files.targets(TOP) for h in t.hdrs
               if h.endswith(".h") and not h.endswith("-inl.h")
               and not h.startswith("bindings/torch/")}
    return sorted(headers - {h[0] for _, _, h in sources() if h})


def sources_with_locks():
    """The sources that have, or include a header that has, a Mutex."""
    def locks(path):
        return os.path.exists(os.path.join(TOP, path)) and re.search(
            r"\bABSL_GUARDED_BY|\bMutex", build_files.read(TOP, path))

    return [path for path, _, headers in sources()
            if locks(path) or any(locks(h) for h in headers)]


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


LOCKED = """
#include "ccl/base/mutex.h"
class Counter {
 public:
  void Add() { %s ++calls_; }
 private:
  trnccl::Mutex mutex_;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
};
"""


class Locks(unittest.TestCase):

    def test_what_a_lock_guards_is_not_touched_without_it(self):
        self.assertIn("mutex_", check_locks(LOCKED % ""))
        self.assertEqual(
            check_locks(LOCKED % "trnccl::MutexLock lock(mutex_);"), "")

    def test_every_source_with_locks_keeps_its_annotations(self):
        mpi = mpi_includes()
        self.assertIn("ccl/base/log.cc", sources_with_locks())
        self.assertEqual("", in_parallel(
            lambda s: check_locks('#include "%s"\n' % s, mpi),
            sources_with_locks()))


class Headers(unittest.TestCase):

    def test_a_header_that_lacks_an_include_is_refused(self):
        self.assertIn("string", compile_text("std::string Name();\n"))

    def test_every_header_compiles_alone(self):
        mpi = mpi_includes()
        self.assertEqual("", in_parallel(
            lambda h: compile_text('#include "%s"\n' % h, mpi),
            headers_to_compile()))

    def test_the_public_one_is_plain_c(self):
        text = '#include "ccl/trnccl.h"\nint main(void) { return 0; }\n'
        for standard in ("c99", "c11", "c17"):
            self.assertEqual(run_compiler("gcc", text, [
                "-std=" + standard, "-Wall", "-Wextra", "-Wpedantic",
                "-Wstrict-prototypes", "-Werror"], "c"), "", standard)

    def test_the_public_one_is_cpp_of_any_age(self):
        text = '#include "ccl/trnccl.h"\n'
        for standard in ("c++11", "c++17", "c++20"):
            self.assertEqual(run_compiler("g++", text, [
                "-std=" + standard, "-Wall", "-Wextra", "-Wpedantic",
                "-Werror"]), "", standard)


if __name__ == "__main__":
    junit.main()
