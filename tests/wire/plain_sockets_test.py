#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""The yardstick of plain sockets works, over the loopback interface."""

import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(
    os.path.dirname(os.path.realpath(__file__)), ".."))
import junit  # noqa: E402

PROGRAM = os.path.join(HERE, "plain_sockets")


def start(*arguments):
    return subprocess.Popen([PROGRAM, *arguments], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


class PlainSockets(unittest.TestCase):

    def test_both_ranks_exchange_and_the_first_reports(self):
        sizes = ["--bytes", "1000003", "--repeats", "3"]
        ranks = [start(*sizes, rank, "127.0.0.1") for rank in "01"]
        reports = [rank.communicate(timeout=60)[0] for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0], reports)
        self.assertRegex(reports[0], r"1000003 bytes each way at once, 3 "
                         r"times: best [\d.]+ GB/s \([\d.]+ us\), median")
        self.assertEqual(reports[1], "")

    def test_wrong_arguments_are_refused(self):
        for arguments, why in ((["2", "127.0.0.1"], "usage"),
                               (["--bytes", "0"], "isn't a positive number"),
                               ([], "bin/nodes")):
            refused = start(*arguments)
            text = refused.communicate(timeout=60)[0]
            self.assertEqual(refused.returncode, 1)
            self.assertIn(why, text)


if __name__ == "__main__":
    junit.main()
