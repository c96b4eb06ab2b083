#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""What users look at: PyTorch's flight recorder, hooks, durations."""

import datetime
import glob
import os
import pickle
import subprocess
import sys
import tempfile

import testing  # First: it finds Python and the package.

import torch
import torch.distributed as dist
import trnccl

_ANALYSER = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace"]


def every_kind(rank, size):
    dist.all_reduce(torch.ones(4, 3))
    dist.all_gather_into_tensor(torch.empty(2 * size), torch.ones(2))
    dist.reduce_scatter_tensor(torch.empty(2), torch.ones(2 * size))
    dist.broadcast(torch.ones(()), 0)
    dist.barrier()
    # The analyser takes messages that cross each other for a fault.
    if rank == 0:
        dist.send(torch.ones(5), 1)
    elif rank == 1:
        dist.recv(torch.empty(5), 0)
    dist.all_reduce(torch.ones(2))
    dist.all_gather([torch.empty(3) for _ in range(size)], torch.ones(3))
    dist.reduce_scatter(torch.empty(3), [torch.ones(3) for _ in range(size)])
    dist.all_gather_object([None] * size, {"rank": rank})
    lists = [torch.ones(2) for _ in range(size)] if rank == 0 else None
    dist.scatter(torch.empty(2), lists)
    dist.gather(torch.ones(2), lists)
    dist.all_to_all_single(torch.empty(2 * size), torch.ones(2 * size))


def entries(rank, size):
    every_kind(rank, size)
    dump = pickle.loads(trnccl.dump_flight_record())
    assert dump["pg_config"]["0"]["ranks"] == str(list(range(size)))
    reduce = next(e for e in dump["entries"]
                  if e["profiling_name"] == "gloo:all_reduce")
    assert reduce["input_sizes"] == [[4, 3]], reduce
    assert reduce["input_dtypes"] == ["Float"], reduce
    assert reduce["state"] == "completed" and reduce["duration_ms"] > 0
    assert reduce["collective_seq_id"] == 1 and not reduce["is_p2p"]
    received = [e for e in dump["entries"] if ":recv" in e["profiling_name"]]
    assert [e["profiling_name"] for e in received] == [
        "gloo:recv 1<-0"] * (rank == 1), received
    folder = os.environ["FOLDER"]
    trnccl.dump_flight_record(f"{folder}/whole_{rank}")
    dist.barrier()


def diverge(rank, size):
    """Rank 1 doesn't make the call that the others make."""
    del size
    group = dist.new_group(timeout=datetime.timedelta(seconds=2))
    dist.all_reduce(torch.ones(3), group=group)
    if rank != 1:
        testing.check_refused(
            dist.DistBackendError,
            lambda: dist.all_reduce(torch.ones(70), group=group), "rank 1")
    dist.barrier()
    if rank == 1:  # It has no error to make it write.
        trnccl.dump_flight_record(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + "1")
    dist.barrier()


def hooks(rank, size):
    del rank, size
    backend = dist.group.WORLD
    seen = []
    backend._register_on_completion_hook(
        lambda info: seen.append((str(info.op_type), info.seq)))
    works = [dist.all_reduce(torch.ones(9), async_op=True) for _ in range(3)]
    backend._wait_for_pending_works()
    assert all(work.is_completed() for work in works)
    assert all("ALLREDUCE" in kind for kind, _ in seen) and len(seen) == 3
    numbers = [number for _, number in seen]
    assert numbers == list(range(numbers[0], numbers[0] + 3)), seen
    assert all(work._get_duration() > 0 for work in works)
    sequence = backend._get_backend(
        torch.device("cpu"))._get_sequence_number_for_group()
    assert sequence == numbers[-1], (sequence, numbers)


class Seeing(testing.RanksTest):

    def analyse(self, prefix):
        done = subprocess.run(
            [*_ANALYSER, os.path.dirname(prefix), "--prefix",
             os.path.basename(prefix)], capture_output=True, text=True)
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout + done.stderr

    def test_pytorchs_analyser_reads_what_was_recorded(self):
        with tempfile.TemporaryDirectory() as folder:
            self.check(entries, sizes=(3,), environment={"FOLDER": folder})
            said = self.analyse(folder + "/whole_")
            for complaint in ("ismatch", "MISMATCH", "ulprit", "rror"):
                self.assertNotIn(complaint, said.replace("No errors", ""))

    def test_a_failure_is_written_and_names_who_is_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            prefix = folder + "/rank_"
            self.check(diverge, sizes=(3,), environment={
                "TORCH_FR_DUMP_TEMP_FILE": prefix})
            self.assertEqual(3, len(glob.glob(prefix + "*")))
            said = self.analyse(prefix)
            self.assertRegex(said, "(?s)all_reduce.*[Mm]issing.*1")

    def test_hooks_are_told(self):
        self.check(hooks)


if __name__ == "__main__":
    testing.main()
