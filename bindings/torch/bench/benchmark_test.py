#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""That the benchmark checks, counts and tells what it measured."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

# The files as Bazel laid them out, with the package that it built.
TORCH = pathlib.Path(__file__).absolute().parents[1]
TOP = pathlib.Path(__file__).resolve().parents[3]
sys.path[1:1] = [str(TORCH), str(TORCH.parent / "mpi" / "suite"),
                 str(TOP / "tests")]
import testing  # noqa: E402,F401 (it turns to the Python of .venv)
import junit  # noqa: E402

import collectives  # noqa: E402
import comparison  # noqa: E402
import overlap  # noqa: E402
import patterns  # noqa: E402
import torch  # noqa: E402
from collectives import COLLECTIVES, Buffers, Shape  # noqa: E402
from figures import Spread  # noqa: E402

BENCHMARK = TORCH / "benchmark.py"
TIMEOUT_S = 120

# Runs the benchmark with sums whose last element is wrong.
SPOILED = """
import runpy, sys
import torch.distributed as dist
right = dist.all_reduce
def wrong(tensor, **keywords):
    right(tensor, **keywords)
    if tensor.numel() > 1:
        tensor[-1] += 1
dist.all_reduce = wrong
sys.argv[0] = %r
runpy.run_path(sys.argv[0], run_name="__main__")
""" % str(BENCHMARK)


def made(collective, rank, ranks=3, elements=12_000, dtype=torch.bfloat16):
    buffers = Buffers(collective, Shape(rank, ranks, elements, dtype))
    buffers.refill()
    return buffers


def play(collective, ranks=3):
    """Buffers of all ranks after the call, which is made by hand."""
    every = [made(collective, rank, ranks) for rank in range(ranks)]
    inputs = [buffers.input.float() for buffers in every]
    for rank, buffers in enumerate(every):
        result = {
            "all_reduce": lambda: sum(inputs),
            "all_gather_into_tensor": lambda: torch.cat(inputs),
            "reduce_scatter_tensor":
                lambda: sum(inputs).chunk(ranks)[rank],
            "broadcast": lambda: inputs[collectives.ROOT],
            "all_to_all_single": lambda: torch.cat(
                [each.chunk(ranks)[rank] for each in inputs]),
        }[collective.name]()
        buffers.output.copy_(result)
    return every


class Check(unittest.TestCase):

    def test_finds_right_results_right(self):
        for collective in COLLECTIVES:
            for buffers in play(collective):
                self.assertEqual(collective.wrong(buffers), 0,
                                 collective.name)

    def test_counts_each_wrong_element(self):
        for collective in COLLECTIVES:
            for buffers in play(collective):
                for place in (0, patterns.PERIOD, -1):
                    buffers.output[place] += 1
                self.assertEqual(collective.wrong(buffers), 3,
                                 collective.name)

    def test_finds_parts_in_each_others_places(self):
        for collective in COLLECTIVES:
            buffers = play(collective)[1]
            halves = buffers.output.chunk(2)
            buffers.output.copy_(torch.cat([halves[1], halves[0]]))
            self.assertGreater(collective.wrong(buffers), 1000,
                               collective.name)

    def test_finds_calls_that_did_nothing(self):
        for collective in COLLECTIVES:
            rank = 1  # Not the root, which has a broadcast's result.
            self.assertGreater(collective.wrong(made(collective, rank)), 1000,
                               collective.name)

    def test_finds_what_a_rank_left_out(self):
        tables = [patterns.table(rank, 4, torch.float32)
                  for rank in range(4)]
        whole = torch.empty(5000)
        patterns.fill(whole, sum(tables[1:]))
        self.assertEqual(patterns.count_wrong(whole, sum(tables)), 5000)

    def test_sums_are_exact_in_any_type(self):
        for ranks in (2, 3, 8, 64):
            for dtype in comparison.DTYPES.values():
                tables = [patterns.table(rank, ranks, dtype)
                          for rank in range(ranks)]
                exact = sum(table.double() for table in tables)
                self.assertTrue(torch.equal(exact, sum(tables).double()))


class Sizes(unittest.TestCase):

    def test_are_those_of_the_larger_buffer(self):
        for collective in COLLECTIVES:
            count = collective.elements(1 << 10, 3, torch.float32)
            buffers = made(collective, 0, 3, count, torch.float32)
            self.assertEqual(count, 256 if collective.in_place else 255)
            self.assertEqual(max(buffers.input.nbytes, buffers.output.nbytes),
                             buffers.shape.bytes)

    def test_of_nothing_make_no_row(self):
        divided = [collective for collective in COLLECTIVES
                   if not collective.in_place]
        self.assertEqual({collective.elements(8, 4, torch.float32)
                          for collective in divided}, {0})


class Rows(unittest.TestCase):

    def test_have_a_value_and_its_range(self):
        row = comparison.Row("all_reduce", 8, "float32", 2, Spread(2, 1, 3),
                             Spread(20, 10, 30), Spread(10, 9, 11), 0.1, 0.01,
                             1000, 100, 0).json()
        self.assertEqual((row["time_us"], row["time_us_min"],
                          row["time_us_max"]), (2, 1, 3))
        self.assertEqual((row["gloo_time_us"], row["speedup"]), (20, 10))


def event(name, begin, end, thread=1):
    return {"ph": "X", "name": name, "ts": begin, "dur": end - begin,
            "tid": thread}


class Overlap(unittest.TestCase):

    def test_is_what_backward_operators_hide(self):
        events = [
            event(overlap.STEP, 50, 250), event(overlap.BACKWARD, 100, 200),
            event("aten::mm", 80, 90), event("aten::mm", 110, 130),
            event("aten::add", 112, 115), event("aten::mm", 150, 160),
            event("aten::mm", 160, 180, thread=2),
            # Two calls at once count once; one is before any backward pass.
            event("neuron:all_reduce", 120, 155, thread=3),
            event("neuron:all_reduce", 140, 170), event("gloo:x", 100, 200),
            event("neuron:all_reduce", 82, 88),
            event("neuron:all_reduce", 10, 20)]
        found, = overlap.by_step(events, [overlap.calls_of(events, "neuron")])
        self.assertEqual((found.busy_us, found.hidden_us), (56, 20))
        self.assertAlmostEqual(found.hidden, 20 / 56)

    def test_begins_when_the_last_rank_joins(self):
        events = [event(overlap.STEP, 0, 100)]
        mine, others = [[(10, 20), (50, 70)], [(14, 21), (30, 60)]]
        found, = overlap.by_step(events, [mine, others])
        self.assertEqual(found.busy_us, 6 + 20)
        found, = overlap.by_step(events, [others, mine])
        self.assertEqual(found.busy_us, 7 + 10)
        with self.assertRaises(ValueError):
            overlap.by_step(events, [mine, others[:1]])

    def test_of_nothing_is_none(self):
        self.assertEqual(overlap.Communication(0, 0).hidden, 0)
        self.assertEqual(overlap.by_step([], [[], []]), [])


class Run(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_ranks(self, script, *arguments):
        """The exit code, and the JSON that it wrote."""
        path = self.folder / "results.json"
        done = subprocess.run(
            [TOP / ".venv" / "bin" / "torchrun", "--nproc-per-node", "2",
             script, "--json", path, "--rounds", "1", *arguments],
            env=dict(os.environ, PYTHONPATH=str(TORCH), OMP_NUM_THREADS="1"),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=TIMEOUT_S, check=False)
        print(done.stdout, flush=True)
        return done.returncode, json.loads(path.read_text())

    def test_writes_rows_a_picture_and_traces(self):
        picture, traces = self.folder / "plot.png", self.folder / "traces"
        code, found = self.run_ranks(
            BENCHMARK, "--compare", "gloo", "-b", "8", "-e", "8K", "-f",
            "1024", "--plot", picture, "--overhead", "--training", "--traces",
            traces)
        self.assertEqual(code, 0)
        rows = {(row["operation"], row["bytes"], row["dtype"])
                for row in found["rows"]}
        self.assertEqual(rows, {("barrier", 0, "none")} | {
            (collective.name, size, dtype) for collective in COLLECTIVES
            for size in (8, 8192) for dtype in comparison.DTYPES})
        for row in found["rows"]:
            self.assertEqual((row["ranks"], row["wrong"] or 0), (2, 0))
            self.assertGreater(row["time_us"], 0)
            self.assertAlmostEqual(row["speedup"],
                                   row["gloo_time_us"] / row["time_us"])
        self.assertEqual(picture.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
        self.assertGreater(found["overhead"]["time_us"]["median"], 0)
        self.assertEqual([one["name"] for one in found["training"]],
                         ["DDP", "FSDP2"])
        for one in found["training"]:
            for backend in ("ours", "gloo"):
                self.assertGreater(one[backend]["busy_us"]["median"], 0)
                json.loads(pathlib.Path(one[backend]["trace"]).read_text())

    def test_fails_if_a_result_is_wrong(self):
        script = self.folder / "spoiled.py"
        script.write_text(SPOILED)
        code, found = self.run_ranks(script, "-e", "8", "--only", "all_reduce",
                                     "-d", "float32")
        self.assertNotEqual(code, 0)
        # On each of 2 ranks, for ours and for Gloo.
        self.assertEqual([row["wrong"] for row in found["rows"]], [4])


if __name__ == "__main__":
    junit.main()
