#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Runs every benchmark between processes, and checks what it says.

    mpi_test.py short | long

short: 2, 3, 4 and 7 ranks, small sizes, every type and operator. long: 8 ranks
and larger sizes. No time is judged.
"""

import json
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

REDUCING = {"all_reduce", "reduce_scatter", "reduce"}
ROOTED = {"broadcast", "reduce", "gather", "scatter"}
OUT_OF_PLACE_ONLY = {"alltoall", "alltoallv", "sendrecv"}
BENCHMARKS = sorted(REDUCING | ROOTED | OUT_OF_PLACE_ONLY | {"all_gather"})

FIELDS = ["bytes", "count", "type", "operator", "root", "in_place",
          "registered", "time_us", "algbw_gbps", "busbw_gbps", "wrong",
          "algorithm", "mpi_time_us", "ratio", "limit_us"]
TYPES = 17
PAIRS = 121  # of type and operator that have a meaning
QUICK = ["-n", "1", "-w", "0"]
TIMEOUT_S = 300


def environment(**variables):
    return dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1",
                OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **variables)


def command(name, flags):
    return [os.path.join(HERE, name + "_perf")] + [str(flag) for flag in flags]


def run(ranks, name, *flags, **variables):
    binding = ["--bind-to", "core"] if ranks == 2 else ["--oversubscribe"]
    if os.cpu_count() < 2 and ranks == 2:
        binding = ["--oversubscribe"]
    return subprocess.run(
        ["mpirun", "-n", str(ranks)] + binding + command(name, flags),
        env=environment(**variables), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S)


class Case(unittest.TestCase):
    def succeed(self, ranks, name, *flags, **variables):
        """Runs to a good end; the JSON that was written."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            done = run(ranks, name, *flags, "-J", path, **variables)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertRegex(done.stdout, r"# Out of bounds values +: 0 OK")
            self.assertRegex(done.stdout, "# Collective test concluded: %s_perf"
                             % name)
            with open(path, encoding="utf-8") as file:
                return json.load(file)

    def refuse(self, code, pattern, ranks, name, *flags, **variables):
        done = run(ranks, name, *flags, **variables)
        self.assertEqual(done.returncode, code, done.stdout)
        self.assertRegex(done.stdout, pattern)

    def every_kind(self, ranks, name, *sizes):
        """All types, operators and roots are exact, in both places."""
        result = self.succeed(ranks, name, *QUICK, "-d", "all", "-o", "all",
                              "-r", "all", *sizes)
        self.assertEqual({row["wrong"] for row in result["rows"]}, {0})
        kinds = {(row["type"], row["operator"]) for row in result["rows"]}
        self.assertEqual(len(kinds), PAIRS if name in REDUCING else TYPES)
        roots = {row["root"] for row in result["rows"]}
        self.assertEqual(roots,
                         set(range(ranks)) if name in ROOTED else {-1})
        places = {row["in_place"] for row in result["rows"]}
        self.assertEqual(places, {False} if name in OUT_OF_PLACE_ONLY
                         else {False, True})


def add_every_kind(case, rank_counts, *sizes):
    """A test for each benchmark and number of ranks."""
    for name in BENCHMARKS:
        for ranks in rank_counts:
            def test(self, name=name, ranks=ranks):
                self.every_kind(ranks, name, *sizes)
            setattr(case, "test_%s_is_exact_on_%d_ranks" % (name, ranks), test)


class Short(Case):
    def test_json_has_the_promised_fields(self):
        result = self.succeed(2, "all_reduce", "-b", "8", "-e", "4K", "-f",
                              "8", "--compare", "mpi")
        self.assertEqual(list(result)[:5], ["benchmark", "ranks", "version",
                                            "average_busbw_gbps", "rows"])
        self.assertEqual(result["benchmark"], "all_reduce")
        self.assertEqual(result["ranks"], 2)
        self.assertEqual(len(result["rows"]), 8)
        for row in result["rows"]:
            self.assertEqual(list(row)[:len(FIELDS)], FIELDS)
            for field in ("time_us", "mpi_time_us", "ratio", "limit_us"):
                self.assertGreater(row[field], 0, field)
            self.assertEqual(row["repetitions"], 9)
            self.assertFalse(row["registered"])
            self.assertNotEqual(row["algorithm"], "")
            self.assertAlmostEqual(row["busbw_gbps"], row["algbw_gbps"],
                                   delta=0.01 * row["algbw_gbps"])

    def test_mpi_is_null_where_it_lacks_the_type_or_operator(self):
        for flags in (["-d", "bfloat16"], ["-o", "avg"], ["-o", "mulsum"]):
            result = self.succeed(2, "all_reduce", *QUICK, "-b", "1K", "-e",
                                  "1K", "--compare", "mpi", *flags)
            for row in result["rows"]:
                self.assertIsNone(row["mpi_time_us"])
                self.assertIsNone(row["ratio"])
                self.assertIsNotNone(row["limit_us"])

    def test_calls_that_move_nothing_have_no_ratio(self):
        result = self.succeed(3, "all_gather", *QUICK, "-b", "8", "-e", "8",
                              "--compare", "mpi")
        self.assertEqual([(row["bytes"], row["ratio"])
                          for row in result["rows"]], [(0, None)] * 2)

    def test_every_benchmark_compares(self):
        for name in BENCHMARKS + ["barrier"]:
            result = self.succeed(3, name, *QUICK, "-b", "3K", "-e", "3K",
                                  "--compare", "mpi", "--fresh", "1")
            for row in result["rows"]:
                self.assertGreater(row["ratio"], 0, name)

    def test_sizes_are_rounded_to_whole_elements_only(self):
        result = self.succeed(2, "all_reduce", *QUICK, "-b", "7", "-e", "37",
                              "-i", "15", "-d", "int16")
        self.assertEqual([row["bytes"] for row in result["rows"]],
                         [6, 6, 22, 22, 36, 36])

    def test_ways_of_calling(self):
        for flags in (["-z", "0"], ["-z", "0", "-m", "3"], ["-z", "1", "-m",
                      "3"], ["-z", "2"], ["-z", "3"], ["-R", "1"],
                      ["-u", "1"], ["-c", "3"], ["--fresh", "1"],
                      ["-a", "3", "-C", "1", "-S", "1", "-M", "1"]):
            for name in ("all_reduce", "sendrecv"):
                self.succeed(2, name, *QUICK, "-b", "4K", "-e", "64K", "-f",
                             "4", *flags)

    def test_several_ranks_in_a_process(self):
        result = self.succeed(2, "all_reduce", *QUICK, "-t", "2", "-b", "8",
                              "-e", "64K", "-f", "8")
        self.assertEqual(result["ranks"], 4)

    def test_groups_of_ranks(self):
        self.succeed(4, "all_gather", *QUICK, "-b", "1K", "-e", "1K",
                     NCCL_TESTS_SPLIT="MOD 2")
        self.succeed(3, "reduce", *QUICK, "-b", "1K", "-e", "1K", "-r", "all",
                     NCCL_TESTS_SPLIT="DIV 2")

    def test_iterations_by_themselves(self):
        done = run(2, "all_reduce", "-b", "8", "-e", "8", "-n", "20", "-I",
                   "1", "-K", "3")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, "i_min +i_max +i_p99 +i_cv%")

    def test_without_a_check_nothing_is_wrong_or_right(self):
        result = self.succeed(2, "all_reduce", *QUICK, "-b", "8", "-e", "8",
                              "-c", "0")
        self.assertEqual([row["wrong"] for row in result["rows"]], [None] * 2)

    def test_barrier_has_one_row_and_no_bytes(self):
        result = self.succeed(3, "barrier", "-n", "10", "-b", "8", "-e", "64",
                              "-f", "2")
        self.assertEqual([row["bytes"] for row in result["rows"]], [0])

    def test_cache_line_is_printed_before_and_after(self):
        done = run(2, "barrier", "-n", "1")
        self.assertEqual(len(re.findall("Cache line.*: [0-9]+ ns",
                                        done.stdout)), 2, done.stdout)

    def test_bad_flags_are_refused(self):
        self.refuse(6, "--quick", 2, "all_reduce", "--quick")
        self.refuse(6, "bxor of -d float", 2, "all_reduce", "-o", "bxor")
        self.refuse(6, "there are 2 ranks", 2, "broadcast", "-r", "2")
        self.refuse(5, "CPU", 2, "all_reduce", "-G", "1")
        self.refuse(255, "-b 64", 2, "all_reduce", "-b", "64", "-e", "8")
        self.refuse(6, "-J", 2, "all_reduce", "-J", "/nonexistent/out.json")

    def test_too_low_a_bandwidth_fails(self):
        done = run(2, "all_reduce", *QUICK, "-b", "8", "-e", "8",
                   NCCL_TESTS_MIN_BW="1000000")
        self.assertEqual(done.returncode, 7, done.stdout)
        self.assertRegex(done.stdout, "Avg bus bandwidth.*FAILED")

    def test_one_wrong_element_fails(self):
        for flags in ([], ["-d", "int8"], ["-d", "bfloat16", "-o", "max"],
                      ["-R", "1"]):
            done = run(2, "broken_all_reduce", *QUICK, "-b", "8", "-e", "64K",
                       "-f", "8", *flags)
            self.assertEqual(done.returncode, 7, done.stdout)
            self.assertRegex(done.stdout,
                             "# Out of bounds values +: [0-9]+ FAILED")

    def test_help_lists_every_flag(self):
        done = run(2, "all_reduce", "--help")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stdout.count("--minbytes"), 1)

    def test_runs_alone(self):
        for flags in ([], ["--compare", "mpi"]):
            done = subprocess.run(
                command("all_reduce", QUICK + ["-b", "8", "-e", "8"] + flags),
                env=environment(), stdout=subprocess.PIPE, text=True,
                timeout=TIMEOUT_S)
            self.assertEqual(done.returncode, 0, done.stdout)

    def test_runs_under_other_launchers(self):
        for rank, size in (("RANK", "WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"),
                           ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
                           ("JOB_COMPLETION_INDEX", "WORLD_SIZE")):
            port = str(30000 + os.getpid() % 10000)
            processes = [
                subprocess.Popen(
                    command("all_reduce", QUICK + ["-b", "8", "-e", "1K",
                                                   "-f", "4"]),
                    env=environment(**{rank: str(process), size: "2",
                                       "MASTER_ADDR": "127.0.0.1",
                                       "MASTER_PORT": port}),
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    text=True)
                for process in range(2)]
            for process in processes:
                output, _ = process.communicate(timeout=TIMEOUT_S)
                self.assertEqual(process.returncode, 0, output)


class Long(Case):
    def test_large_sizes_are_exact(self):
        for name in BENCHMARKS:
            for registered in (0, 1):
                self.succeed(2, name, *QUICK, "-b", "1M", "-e", "64M", "-f",
                             "8", "-R", registered)

    def test_sizes_in_between_are_exact(self):
        for name in BENCHMARKS:
            for ranks in (2, 5):
                self.succeed(ranks, name, *QUICK, "-b", "1020", "-e", "300K",
                             "-i", "9876", "-d", "uint8", "-o", "sum")


add_every_kind(Short, (2, 3, 4, 7), "-b", "4", "-e", "1K", "-f", "16")
add_every_kind(Long, (8,), "-b", "4", "-e", "64K", "-f", "16")


def load_tests(loader, tests, pattern):
    return loader.loadTestsFromTestCase(Long if PART == "long" else Short)


if __name__ == "__main__":
    PART = sys.argv.pop(1)
    junit.main()
