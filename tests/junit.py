# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Runs a script's unittest cases and tells Bazel of each one.

Bazel's sh_test sees only an exit code; with the XML written here bin/test can
count the cases. End a test script with:

    if __name__ == "__main__":
        junit.main()
"""

import os
import sys
import time
import unittest
from xml.etree import ElementTree


class _Result(unittest.TextTestResult):
    """Keeps, for every case that ran, its time and its failures."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.suite = ElementTree.Element("testsuite", name="python")
        self._began = 0.0

    def startTest(self, test):
        super().startTest(test)
        self._began = time.monotonic()

    def stopTest(self, test):
        super().stopTest(test)
        kind, _, name = test.id().rpartition(".")
        case = ElementTree.SubElement(
            self.suite, "testcase", classname=kind, name=name,
            time="%.3f" % (time.monotonic() - self._began))
        for failed, text in self.failures + self.errors:
            if failed is test or getattr(failed, "test_case", None) is test:
                ElementTree.SubElement(case, "failure").text = text
        if any(skipped is test for skipped, _ in self.skipped):
            ElementTree.SubElement(case, "skipped")


def main():
    program = unittest.main(
        exit=False, verbosity=2,
        testRunner=unittest.TextTestRunner(
            stream=sys.stdout, verbosity=2, resultclass=_Result))
    path = os.environ.get("XML_OUTPUT_FILE")
    if path:
        suites = ElementTree.Element("testsuites")
        suites.append(program.result.suite)
        ElementTree.ElementTree(suites).write(path, encoding="utf-8",
                                              xml_declaration=True)
    sys.exit(0 if program.result.wasSuccessful() else 1)
