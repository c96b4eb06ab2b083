#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""What `trnccl status`, `trace` and `info` say of jobs whose state is known."""

import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(
    os.path.dirname(os.path.realpath(__file__)), "../../tests"))
import junit  # noqa: E402

TIMEOUT_S = 60
AGE = r"[0-9.]+ (ms|s|min)"


def run(*arguments, **variables):
    return subprocess.run(
        [os.path.join(HERE, "trnccl")] + [str(a) for a in arguments],
        env=dict(os.environ, **variables), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S)


class Rank:

    def __init__(self, **variables):
        self.process = subprocess.Popen(
            [os.path.join(HERE, "test_job")], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, bufsize=1,
            env=dict(os.environ, TRNCCL_LOG_FILE="/dev/null", **variables))
        self.pid = self.process.pid

    def tell(self, *words):
        self.process.stdin.write(" ".join(str(w) for w in words) + "\n")

    def answer(self):
        return self.process.stdout.readline().rstrip("\n")

    def end(self):
        self.process.kill()
        self.process.communicate()


class Jobs(unittest.TestCase):

    def setUp(self):
        self.ranks = []
        self.folder = tempfile.mkdtemp()

    def tearDown(self):
        for rank in self.ranks:
            rank.end()
        shutil.rmtree(self.folder)

    def start(self, size=3, **variables):
        """Ranks that have made two calls."""
        self.ranks = [Rank(**variables) for _ in range(size)]
        self.ranks[0].tell("id")
        name = self.ranks[0].answer()
        for number, rank in enumerate(self.ranks):
            rank.tell("init", name, size, number)
        self.expect("ok")
        for _ in range(2):
            self.tell("all_reduce", 1024)
            self.expect("ok")

    def tell(self, *words, ranks=None):
        for rank in self.ranks if ranks is None else ranks:
            rank.tell(*words)

    def expect(self, answer, ranks=None):
        for rank in self.ranks if ranks is None else ranks:
            self.assertRegex(rank.answer(), answer)

    def status(self, until):
        """What is said once `until` holds of it: the one communicator."""
        pids = [w for r in self.ranks for w in ("--pid", r.pid)]
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            done = run("status", "--json", *pids)
            self.assertEqual(done.returncode, 0, done.stderr)
            job = json.loads(done.stdout)
            self.assertEqual(job["unread"], [])
            self.assertEqual(len(job["communicators"]), 1)
            if until(job["communicators"][0]):
                return job["communicators"][0]
            self.assertLess(time.monotonic(), deadline, done.stdout)

    def check_findings(self, communicator, *expected):
        """Each a kind, ranks, and a pattern of the whole text."""
        found = communicator["findings"]
        self.assertEqual([(f["kind"], f["ranks"]) for f in found],
                         [(kind, ranks) for kind, ranks, _ in expected], found)
        for finding, (_, _, pattern) in zip(found, expected):
            self.assertRegex(finding["text"], "^%s$" % pattern)


def current(number, *ranks):
    """Whether those ranks are in that call."""
    def check(communicator):
        return all((communicator["members"][r]["current"] or {}).get("call")
                   == number for r in ranks)
    return check


class Status(Jobs):

    def test_names_the_rank_that_is_stopped_and_who_waits_for_it(self):
        self.start()
        os.kill(self.ranks[2].pid, signal.SIGSTOP)
        self.tell("all_reduce", 1 << 20, ranks=self.ranks[:2])
        seen = self.status(
            lambda c: current(3, 0, 1)(c) and
            c["members"][2]["process"] == "stopped")
        self.check_findings(
            seen,
            ("stopped", [2], r"rank 2 \(pid %d\) is stopped" %
             self.ranks[2].pid),
            ("behind", [2],
             r"rank 2 has made no call since 2 all_reduce of 4 KiB, done %s "
             r"ago; all others are at call 3 all_reduce of 4 MiB for %s" %
             (AGE, AGE)))
        self.assertEqual([m["pid"] for m in seen["members"]],
                         [r.pid for r in self.ranks])
        call = seen["members"][0]["current"]
        self.assertEqual(
            (call["kind"], call["count"], call["bytes"], call["type"],
             call["operator"], call["state"]),
            ("all_reduce", 1 << 20, 4 << 20, "float32", "sum", "started"))
        self.assertNotEqual(call["algorithm"], "")
        text = run("status", "--pid", self.ranks[0].pid).stdout
        self.assertRegex(text, "ranks 1, 2 not seen here")
        os.kill(self.ranks[2].pid, signal.SIGCONT)
        self.tell("all_reduce", 1 << 20, ranks=self.ranks[2:])
        self.expect("ok")
        seen = self.status(lambda c: True)
        self.check_findings(
            seen, ("idle", [0, 1, 2],
                   r"all: ranks 0, 1, 2 have made no call since 3 all_reduce "
                   r"of 4 MiB, done %s ago" % AGE))

    def test_names_who_waits_for_a_message(self):
        self.start(size=2)
        self.tell("recv", 16, 0, ranks=self.ranks[1:])
        seen = self.status(lambda c: c["members"][1]["message"])
        self.check_findings(
            seen, ("idle", [0, 1], "all: .*"),
            ("message", [1],
             "rank 1 is in recv of 64 B from rank 0, tag 0, for " + AGE))

    def test_sees_a_rank_once_though_it_has_forked(self):
        self.start(size=2)
        self.tell("fork")
        self.expect("ok")
        done = run("status", "--json")
        seen = [c for c in json.loads(done.stdout)["communicators"]
                if self.ranks[0].pid in [m["pid"] for m in c["members"]]]
        self.assertEqual([m["pid"] for m in seen[0]["members"]],
                         [r.pid for r in self.ranks])

    def test_says_what_it_cannot_look_at(self):
        done = run("status", "--pid", os.getpid())
        self.assertEqual(done.stdout, "no communicators found\n")
        ended = subprocess.Popen(["true"])
        ended.wait()
        done = run("status", "--pid", ended.pid)
        self.assertIn("not read: pid %d: " % ended.pid, done.stdout)


class Trace(Jobs):

    def trace(self, *arguments):
        done = run("trace", "--json", self.folder, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        job = json.loads(done.stdout)
        self.assertEqual(job["unread"], [])
        self.assertEqual(len(job["communicators"]), 1, done.stdout)
        return job["communicators"][0]

    def test_names_both_sides_of_a_call_that_differs(self):
        self.start(TRNCCL_DUMP_ON_FAILURE=self.folder + "/calls_")
        self.tell("broadcast", 7, 0, ranks=self.ranks[1:2])
        self.tell("all_reduce", 1024, ranks=self.ranks[::2])
        self.expect("broadcast")
        os.mkdir(self.folder + "/out")  # Folders in it aren't looked at.
        chrome = self.folder + "/out/chrome.json"
        seen = self.trace("--chrome", chrome)
        self.check_findings(
            seen,
            ("failed", [0, 1, 2], "failed on ranks 0, 1, 2: .*disagree.*"),
            ("mismatch", [1],
             r"call 3 differs: rank 1 makes broadcast of 7 float32, root 0; "
             r"ranks 0, 2 make all_reduce of 1024 float32 \(sum\)"),
            ("together", [0, 1, 2], "all: ranks 0, 1, 2 are at call 3 .*"))
        with open(chrome, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        calls = [e for e in events if e["ph"] == "X"]
        self.assertEqual(len(calls), 9)
        self.assertEqual(min(e["ts"] for e in calls), 0)
        self.assertEqual(
            sorted(e["args"]["name"] for e in events
                   if e["name"] == "process_name"),
            ["rank %d (%s:%d)" % (n, seen["members"][n]["host"], r.pid)
             for n, r in enumerate(self.ranks)])

    def test_names_who_has_left_no_dump_and_who_is_behind(self):
        self.start(TRNCCL_DUMP_ON_FAILURE=self.folder + "/calls_",
                   TRNCCL_TIMEOUT_MS="300ms")
        self.tell("all_reduce", 1 << 20, ranks=self.ranks[::2])
        self.expect("rank [02]: .*rank 1", ranks=self.ranks[::2])
        self.check_findings(
            self.trace(),
            ("failed", [0, 2], "failed on ranks 0, 2: .*rank 1.*"),
            ("missing", [1], "rank 1: no dump; .*"),
            ("together", [0, 2],
             "all: ranks 0, 2 are at call 3 all_reduce of 4 MiB for " + AGE))
        self.tell("dump", self.folder + "/late", ranks=self.ranks[1:2])
        self.expect("ok", ranks=self.ranks[1:2])
        self.check_findings(
            self.trace(), ("failed", [0, 2], ".*"),
            ("behind", [1],
             r"rank 1 has made no call since 2 all_reduce of 4 KiB, done %s "
             r"ago; all others are at call 3 all_reduce of 4 MiB for %s" %
             (AGE, AGE)))

    def test_reads_what_pytorch_writes(self):
        """In the form of PyTorch's own recorder, of ranks 4 and 6."""
        for rank, calls in ((4, 3), (6, 2)):
            entries = [
                {"record_id": n, "pg_id": 0, "process_group": ("7", "mesh"),
                 "collective_seq_id": n + 1, "p2p_seq_id": 0, "op_id": n + 1,
                 "profiling_name": "nccl:_all_gather_base",
                 "time_created_ns": 1700000000_000000000 + n,
                 "time_discovered_started_ns": None,
                 "time_discovered_completed_ns":
                     1700000000_000000000 + n if n < 2 else None,
                 "duration_ms": None, "input_sizes": ((3, 5),),
                 "input_dtypes": ["Float"], "output_sizes": ((6, 5),),
                 "output_dtypes": ["Float"], "is_p2p": False,
                 "state": "completed" if n < 2 else "started"}
                for n in range(calls)]
            with open("%s/rank_%d" % (self.folder, rank), "wb") as file:
                pickle.dump({"version": "2.10", "entries": entries,
                             "pg_config": {"7": {"name": "7", "desc": "mesh",
                                                 "ranks": "[4, 6]"}}},
                            file, protocol=2)
        self.check_findings(
            self.trace(),
            ("behind", [6],
             r"rank 6 has made no call since 2 all_gather_into_tensor of "
             r"120 B, done .* ago; rank 4 is at call 3 all_gather_into_tensor "
             r"of 120 B for .*"))

    def test_refuses_what_is_no_dump(self):
        path = self.folder + "/other"
        with open(path, "w", encoding="utf-8") as file:
            file.write("{}")
        done = run("trace", path)
        self.assertEqual(done.returncode, 1)
        self.assertIn(path, done.stderr)
        done = run("trace", self.folder)
        self.assertEqual(done.returncode, 0)
        self.assertIn("not read: " + path, done.stdout)


class Info(unittest.TestCase):

    def test_says_what_is_set_and_by_whom(self):
        done = run("info", "--json", TRNCCL_SPIN_US="7")
        self.assertEqual(done.returncode, 0, done.stderr)
        info = json.loads(done.stdout)
        self.assertEqual(info["settings"]["TRNCCL_SPIN_US"],
                         {"value": "7", "source": "environment"})
        self.assertEqual(info["settings"]["TRNCCL_LANES"]["source"], "default")
        self.assertRegex(info["library"]["version"], r"^\d+\.\d+\.\d+$")
        self.assertEqual(info["machine"]["host"], os.uname().nodename)
        self.assertTrue({"provider", "error"} & set(info["fabric"]))
        text = run("info", TRNCCL_SPIN_US="7").stdout
        self.assertTrue(re.search(r"TRNCCL_SPIN_US +7  \(environment\)\n",
                                  text), text)

    def test_a_setting_that_is_none_is_named(self):
        done = run("info", TRNCCL_SPINN_US="7")
        self.assertEqual(done.returncode, 1)
        self.assertIn("did you mean TRNCCL_SPIN_US", done.stderr)


class Usage(unittest.TestCase):

    def test_wrong_words_are_refused_by_name(self):
        for words in (["status", "--pid", "none"], ["status", "--fast"],
                      ["trace", "--fast"], ["info", "--fast"]):
            done = run(*words)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(words[1], done.stderr)
        self.assertEqual(run("trace").returncode, 2)


if __name__ == "__main__":
    junit.main()
