#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Runs the tool as a user does. No time is judged."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(
    os.path.dirname(os.path.realpath(__file__)), "../../tests"))
import junit  # noqa: E402

MEASURED = {"latency_s", "message_s", "seconds_per_byte", "step_s",
            "fold_seconds_per_byte", "copy_seconds_per_byte",
            "peer_copy_call_s", "peer_copy_seconds_per_byte"}
BUILT_IN = {"node_latency_s", "node_message_s", "node_receive_s",
            "node_seconds_per_byte"}
TIMEOUT_S = 120


def run(*arguments, **variables):
    return subprocess.run(
        [os.path.join(HERE, "trnccl")] + list(arguments),
        env=dict(os.environ, **variables), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S)


def constants(text):
    return {name: float(value)
            for name, value in re.findall(r"^(\w+) = (\S+)$", text, re.M)}


class Tune(unittest.TestCase):

    def test_writes_a_constant_a_line_with_a_comment_each(self):
        done = run("tune", "--quick")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = constants(done.stdout)
        self.assertEqual(set(found), MEASURED | BUILT_IN)
        for name, value in found.items():
            # A second a kilobyte, or a millisecond a step, is no machine.
            most = 1e-6 if name.endswith("_per_byte") else 1e-3
            self.assertTrue(0 <= value < most, (name, value))
            self.assertRegex(done.stdout, r"\n# .*\n%s = " % name)

    def test_writes_a_file_that_the_planner_takes(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tuning")
            done = run("tune", "--quick", "--out", path)
            self.assertEqual((done.returncode, done.stdout), (0, ""),
                             done.stderr)
            plan = run("plan", TRNCCL_TUNING_FILE=path)
            self.assertEqual(plan.returncode, 0, plan.stderr)
            self.assertIn("constants: " + path, plan.stdout)

    def test_says_that_it_cannot_write(self):
        done = run("tune", "--quick", "--out", "/no/such/folder/file")
        self.assertEqual(done.returncode, 1)
        self.assertIn("can't write /no/such/folder/file", done.stderr)


class Usage(unittest.TestCase):

    def test_wrong_words_are_refused_by_name(self):
        for words in (["tune", "--fast"], ["plan", "--ranks", "none"],
                      ["tune", "--out"]):
            done = run(*words)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(words[-1], done.stderr)

    def test_help_names_every_subcommand(self):
        self.assertEqual(run("help").returncode, 0)
        for done in (run("help"), run(), run("tuna")):
            for name in ("info", "plan", "status", "trace", "tune"):
                self.assertIn("trnccl %s" % name, done.stdout + done.stderr)
        self.assertEqual(run("tuna").returncode, 2)


if __name__ == "__main__":
    junit.main()
