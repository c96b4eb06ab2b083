#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""That bin/benchmark plans, judges and tells what its results say."""

import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(
    os.path.dirname(os.path.realpath(__file__)), "../../../tests"))
import junit  # noqa: E402

import figures  # noqa: E402
import goals  # noqa: E402
import launcher  # noqa: E402
import plan  # noqa: E402
import tables  # noqa: E402
from plan import KIB, MIB, Choice, Key, Run, Sizes  # noqa: E402
from results import Finished, Results  # noqa: E402

MACHINE = {"cpu": "Model", "cores": 2, "kernel": "6.1", "open_mpi": "4.1.4",
           "cache_line_ns": {"median": 60, "min": 55, "max": 64},
           "busy_cpus": 0.0, "revision": "abc", "date": "2025-01-02"}


def row(size, ratio=0.5, in_place=False, **others):
    """As a benchmark writes it; MPI takes 10 us."""
    return {"bytes": size, "in_place": in_place, "time_us": 10 * ratio,
            "mpi_time_us": 10.0, "ratio": ratio, "ratio_min": ratio - 0.25,
            "ratio_max": ratio + 0.25, "algbw_gbps": 1.0, **others}


def finished(key, sizes, rows, number=0):
    return Finished(Run(key, sizes, number), 1.0,
                    {"rows": rows, "cache_line_ns": [60.0, None]})


def measured(key, *ratios_by_size):
    return Results([finished(key, Sizes(size, size), [row(size, ratio)])
                    for size, ratio in ratios_by_size])


class Plan(unittest.TestCase):
    def test_hits_every_goal_of_the_main_collectives(self):
        hit = {(run.key, size) for run in plan.make_plan(Choice())
               for size in run.sizes if run.round == 0}
        for benchmark in plan.MAIN:
            for registered in (False, True):
                for ranks in (2, 4):
                    for size in goals.SIZES:
                        self.assertIn((Key(benchmark, ranks, registered),
                                       size), hit)
                self.assertIn((Key(benchmark, 8, registered), 16 * MIB), hit)
                self.assertIn((Key(benchmark, 2, registered, fresh=True),
                               128 * MIB), hit)

    def test_measures_nothing_twice(self):
        for detail in (plan.FULL, plan.QUICK):
            runs = plan.make_plan(Choice(detail=detail))
            rows = [(run.key, run.round, size) for run in runs
                    for size in run.sizes]
            self.assertEqual(len(rows), len(set(rows)))
            self.assertEqual(len(runs), len({run.name for run in runs}))

    def test_covers_every_benchmark(self):
        for detail in (plan.FULL, plan.QUICK):
            self.assertEqual(
                {run.key.benchmark
                 for run in plan.make_plan(Choice(detail=detail))},
                set(plan.BENCHMARKS))

    def test_keeps_to_what_was_chosen(self):
        runs = plan.make_plan(Choice(["all_gather", "gather"], [4, 8],
                                     32 * KIB))
        self.assertEqual({(run.key.benchmark, run.key.ranks) for run in runs},
                         {("all_gather", 4), ("all_gather", 8),
                          ("gather", 4)})
        self.assertEqual(max(size for run in runs for size in run.sizes),
                         32 * KIB)

    def test_flags_say_what_the_key_says(self):
        key = Key("all_reduce", 2, registered=True, fresh=True)
        self.assertEqual(
            Run(key, Sizes(8, 64, 4)).flags(),
            "-b 8 -e 64 -f 4 -R 1 --fresh 1 --compare mpi".split())
        key = Key("all_reduce", 2, type="half")
        self.assertEqual(Run(key, Sizes(8, 8), 1).flags(),
                         "-b 8 -e 8 -d half -c 0".split())


class Measured(unittest.TestCase):
    def test_sizes_are_those_asked_for(self):
        """5 ranks round 64 bytes down to 60, and 8 to nothing."""
        done = finished(Key("all_gather", 5), Sizes(8, 64, 8),
                        [row(0), row(0, in_place=True),
                         row(60, 0.7), row(60, 0.9, in_place=True)])
        self.assertEqual({size: found["ratio"]
                          for size, found in done.rows().items()}, {64: 0.7})

    def test_a_curve_joins_its_runs_and_no_other(self):
        key = Key("all_reduce", 2, registered=True)
        results = Results(
            measured(key, (64, 0.5), (8, 0.5)).finished +
            measured(Key("all_reduce", 2), (KIB, 0.5)).finished +
            [finished(key, Sizes(MIB, MIB), [row(MIB)], number=1)])
        self.assertEqual(list(results.curve(key)), [8, 64])

    def test_types_are_compared_within_their_round(self):
        half = Key("all_reduce", 2, type="half")
        results = Results(
            [finished(key, Sizes(MIB, MIB), [row(MIB, algbw_gbps=gbps)],
                      number)
             for number, base, gbps_half in ((1, 10, 8), (2, 4, 4), (3, 2, 3))
             for key, gbps in ((Key("all_reduce", 2), base),
                               (half, gbps_half))])
        ratio = results.bandwidth_ratios(half)[MIB]
        self.assertEqual((ratio.min, ratio.median, ratio.max), (0.8, 1, 1.5))

    def test_cache_line_leaves_out_what_was_not_measured(self):
        found = measured(Key("reduce", 2), (64, 1)).cache_line_ns()
        self.assertEqual((found.min, found.max), (60, 60))
        self.assertIsNone(Results([]).cache_line_ns())


class Goals(unittest.TestCase):
    def test_of_two_ranks(self):
        ratio = goals.ratio_goal
        self.assertEqual(ratio(Key("all_reduce", 2), 8), 1.2)
        self.assertEqual(ratio(Key("all_gather", 2), 64), 1.3)
        self.assertEqual(ratio(Key("all_gather", 2), KIB), 1.0)
        self.assertEqual(ratio(Key("reduce_scatter", 2, True), 16 * MIB), 0.08)
        self.assertIsNone(ratio(Key("all_reduce", 2), 512))
        self.assertEqual(ratio(Key("all_reduce", 2, fresh=True), 512), 1.0)

    def test_of_more_ranks(self):
        for benchmark, size, most in (
                ("all_reduce", KIB, 1.0), ("all_reduce", 2 * KIB, 0.7),
                ("reduce_scatter", 256 * KIB, 0.7),
                ("reduce_scatter", MIB, 0.5), ("all_gather", 4 * MIB, 0.8),
                ("all_gather", 128 * MIB, 0.9)):
            self.assertEqual(goals.ratio_goal(Key(benchmark, 4), size), most)
            self.assertEqual(goals.ratio_goal(Key(benchmark, 8), size), 1.0)

    def test_of_the_others(self):
        for ranks in (2, 4):
            key = Key("sendrecv", ranks, registered=True)
            self.assertEqual(goals.ratio_goal(key, 64), 1.2)
            self.assertEqual(goals.ratio_goal(key, 128), 1.0)
        self.assertIsNone(goals.ratio_goal(Key("barrier", 2), 0))

    def test_are_judged_by_the_median(self):
        outcomes = goals.judge(measured(Key("all_reduce", 2), (KIB, 0.9),
                                        (8 * KIB, 0.23)))
        self.assertEqual([outcome.reached for outcome in outcomes],
                         [True, False])
        self.assertEqual(str(outcomes[1]), "2 ranks, all-reduce, 8 KiB: 0.23 "
                         "(-0.02 to 0.48), goal 0.22")
        self.assertEqual(tables.summary(outcomes), "1 of 2 goals reached.")

    def test_narrow_floats_must_keep_up(self):
        results = Results(
            [finished(Key("all_reduce", 2, type=name), Sizes(KIB, MIB, 1024),
                      [row(size, algbw_gbps=gbps) for size in (KIB, MIB)], 1)
             for name, gbps in (("float", 10), ("half", 9),
                                ("bfloat16", 8.9))])
        self.assertEqual([(outcome.size, outcome.reached)
                          for outcome in goals.judge(results)],
                         [(MIB, True), (MIB, False)])


class Tables(unittest.TestCase):
    def test_have_the_form_of_the_readme(self):
        results = Results(
            measured(Key("all_reduce", 2), (64, 0.5), (KIB, 0.75)).finished +
            measured(Key("all_gather", 2, True), (KIB, 1.0)).finished)
        text = tables.report(results, MACHINE)
        self.assertIn("""2 ranks, a core each:

| bytes | all-reduce | all-gather, registered |
|---|---|---|
| 64 B | 5.00 : 10.0 = **0.50** (0.25 to 0.75) |  |
| 1 KiB | 7.50 : 10.0 = **0.75** (0.50 to 1.00) | 10.0 : 10.0 = **1.00** \
(0.75 to 1.25) |
""", text)
        self.assertIn("3 of 3 goals reached.", text)
        self.assertNotIn("fresh", text)

    def test_list_goals_that_were_not_reached(self):
        text = tables.report(measured(Key("gather", 4), (64, 1.5)), MACHINE)
        self.assertIn("4 ranks on 2 cores, the others:", text)
        self.assertIn("- 4 ranks, gather, 64 B: 1.50 (1.25 to 1.75), goal 1.2",
                      text)

    def test_a_barrier_has_a_line(self):
        text = tables.report(Results([finished(Key("barrier", 2), Sizes(1, 1),
                                               [row(0)])]), MACHINE)
        self.assertIn("barrier: 5.00 : 10.0 = **0.50** (0.25 to 0.75)", text)
        self.assertIn("No goal is set", text)

    def test_numbers_are_short(self):
        self.assertEqual([figures.time_text(us)
                          for us in (0.456, 45.67, 456.7)],
                         ["0.46", "45.7", "457"])
        self.assertEqual([figures.size_text(size) for size in (
            0, 1000, KIB, 1536, 128 * MIB)],
            ["0 B", "1000 B", "1 KiB", "1536 B", "128 MiB"])


class Launcher(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.log = os.path.join(self.folder, "log")

    def test_ranks_get_a_core_each_or_share(self):
        run = Run(Key("reduce", 2), Sizes(8, 8))
        self.assertIn("--bind-to", launcher.command(run, "bin", 2))
        self.assertIn("--oversubscribe", launcher.command(run, "bin", 1))

    def test_gives_exit_code_and_output(self):
        code = launcher.execute(["sh", "-c", "echo out; echo err >&2; exit 3"],
                                self.log)
        self.assertEqual(code, 3)
        with open(self.log, encoding="utf-8") as log:
            self.assertEqual(log.read(), "out\nerr\n")

    def leaves_nobody(self, script):
        """Runs it with a pipe that's at its end once all its users are."""
        pipe = os.path.join(self.folder, "pipe")
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        try:
            return launcher.execute(
                ["sh", "-c", "exec 3>%s; %s" % (pipe, script)], self.log)
        finally:
            os.set_blocking(reader, True)
            self.assertEqual(os.read(reader, 1), b"")

    def test_ends_what_outlives_its_run(self):
        self.assertEqual(self.leaves_nobody("sleep infinity & exit 0"), 0)

    @mock.patch.object(launcher, "TIMEOUT_S", 0.1)
    @mock.patch.object(launcher, "GRACE_S", 0.1)
    def test_ends_what_takes_too_long_and_will_not_stop(self):
        self.assertIsNone(self.leaves_nobody("trap '' TERM; sleep infinity & "
                                             "while :; do wait; done"))

    def test_ends_all_when_interrupted(self):
        wait = subprocess.Popen.wait
        interrupts = iter([KeyboardInterrupt])

        def interrupted(process, timeout=None):
            for interrupt in interrupts:
                raise interrupt
            return wait(process, timeout)
        with mock.patch.object(subprocess.Popen, "wait", interrupted), \
                self.assertRaises(KeyboardInterrupt):
            self.leaves_nobody("sleep infinity")


if __name__ == "__main__":
    junit.main()
