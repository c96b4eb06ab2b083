#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""That the shared library shows its C API and nothing else.

Whatever else it showed could clash with another library's names in the same
process, and would become an interface by accident.
"""

import os
import re
import subprocess
import tempfile
import unittest

import build_files
import junit


def exports(library):
    """The names that a shared library defines for others."""
    run = subprocess.run(["nm", "-D", "--defined-only", library], text=True,
                         stdout=subprocess.PIPE, check=True)
    return {line.split()[-1].partition("@")[0]
            for line in run.stdout.splitlines()}


def declared(header):
    """The functions that the public header promises."""
    return set(re.findall(r"^TRNCCL_EXPORT[^(;]*?\b(trnccl\w+)\s*\(", header,
                          re.MULTILINE))


class Exports(unittest.TestCase):

    def setUp(self):
        # Bazel says where the library is (tests/BUILD).
        self.found = exports(os.environ["LIBRARY_UNDER_TEST"])
        self.promised = declared(
            build_files.read(build_files.root(), "ccl/trnccl.h"))

    def test_are_what_the_header_declares_and_nothing_else(self):
        self.assertIn("trncclAllReduce", self.promised)
        self.assertEqual(sorted(self.found - self.promised), [])
        self.assertEqual(sorted(self.promised - self.found), [])

    def test_of_another_library_are_seen(self):
        with tempfile.TemporaryDirectory() as folder:
            library = os.path.join(folder, "lib.so")
            subprocess.run(["gcc", "-shared", "-x", "c", "-", "-o", library],
                           input="int leaked; void trncclX(void) {}\n",
                           text=True, check=True)
            self.assertEqual(exports(library), {"leaked", "trncclX"})


if __name__ == "__main__":
    junit.main()
