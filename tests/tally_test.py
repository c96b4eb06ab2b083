#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""That bin/test's count can't be fooled."""

import tempfile
import unittest

import junit
import tally

XML = """<testsuites><testsuite name="Ring">
<testcase classname="Ring" name="A" status="run" result="completed"/>
<testcase classname="Ring" name="B" status="run" result="completed">%s
</testcase>
<testcase classname="Ring" name="C" status="run" result="skipped"/>
<testcase classname="Ring" name="D" status="notrun" result="suppressed"/>
</testsuite></testsuites>"""
GREEN = XML % ""
RED = XML % "<failure message='no'/>"
# What Bazel writes for a test that wrote no XML and failed.
CRASHED = """<testsuites><testsuite><testcase name="x"><error/></testcase>
</testsuite></testsuites>"""


def configured(label, kind="cc_test rule"):
    return {"id": {"targetConfigured": {"label": label}},
            "configured": {"targetKind": kind}}


def result(label, status, uri="file:///xml", attempt=1, shard=1):
    return {"id": {"testResult": {"label": label, "run": 1, "shard": shard,
                                  "attempt": attempt}},
            "testResult": {"status": status, "testActionOutput": [
                {"name": "test.log", "uri": "file:///log"},
                {"name": "test.xml", "uri": uri}]}}


def count(events, xml=GREEN, exit_code=0):
    run = tally.tally_run(events, exit_code, read=lambda uri: xml)
    return run.passed, len(run.failed), run.skipped


class Tally(unittest.TestCase):

    def test_counts_cases_not_targets(self):
        events = [configured("//a:t"), result("//a:t", "PASSED")]
        self.assertEqual(count(events), (2, 0, 1))

    def test_adds_up_shards(self):
        events = [configured("//a:t"), result("//a:t", "PASSED", shard=1),
                  result("//a:t", "PASSED", shard=2)]
        self.assertEqual(count(events), (4, 0, 2))

    def test_counts_only_the_last_attempt(self):
        events = [configured("//a:t"), result("//a:t", "FAILED", attempt=1),
                  result("//a:t", "PASSED", attempt=2)]
        self.assertEqual(count(events), (2, 0, 1))

    def test_counts_a_failed_case(self):
        events = [configured("//a:t"), result("//a:t", "FAILED")]
        self.assertEqual(count(events, RED, 3), (1, 1, 1))

    def test_counts_a_crash_once(self):
        events = [configured("//a:t"), result("//a:t", "FAILED")]
        self.assertEqual(count(events, CRASHED, 3), (0, 1, 0))

    def test_fails_a_target_whose_cases_passed_but_whose_exit_did_not(self):
        events = [configured("//a:t"), result("//a:t", "TIMEOUT")]
        self.assertEqual(count(events, GREEN, 3)[1], 1)

    def test_fails_a_target_that_did_not_build(self):
        events = [configured("//a:t"), configured("//a:u"),
                  result("//a:t", "PASSED")]
        self.assertEqual(count(events, GREEN, 1), (2, 1, 1))

    def test_fails_a_target_without_cases(self):
        events = [configured("//a:t"), result("//a:t", "PASSED")]
        self.assertEqual(count(events, "<testsuites/>")[1], 1)

    def test_fails_a_broken_report(self):
        events = [configured("//a:t"), result("//a:t", "PASSED")]
        self.assertEqual(count(events, "<testsuites>")[1], 1)

    def test_fails_when_bazel_failed_and_no_case_says_why(self):
        events = [configured("//a:l", "cc_library rule"),
                  configured("//a:t"), result("//a:t", "PASSED")]
        self.assertEqual(count(events, GREEN, 1), (2, 1, 1))

    def test_counts_a_scripts_cases(self):
        with tempfile.TemporaryDirectory() as folder:
            path = folder + "/cases.xml"
            self.assertEqual(1, len(tally.tally_script(path, 0).failed))
            with open(path, "w", encoding="utf-8") as file:
                file.write(GREEN)
            self.assertEqual(2, tally.tally_script(path, 0).passed)
            self.assertEqual(1, len(tally.tally_script(path, 1).failed))

    def test_fails_a_run_without_tests(self):
        self.assertEqual(count([], GREEN, 0), (0, 1, 0))
        self.assertEqual(count([], GREEN, 4), (0, 1, 0))


if __name__ == "__main__":
    junit.main()
