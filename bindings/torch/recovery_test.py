#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Ranks that are lost: by SIGKILL, by exit, by an exception of their own. The
others go on or end by themselves; no process stays."""

import testing  # First: it finds Python and the package.

import datetime
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
import trnccl

# After it a process counts as one that hangs.
_PATIENCE_S = 60
_KILLED = -signal.SIGKILL
# This file, as a program that torchrun starts, and its processes' mark.
_TORCHRUN = "--under-torchrun"
_MARK = "RECOVERY_TEST_OF"
_STEPS = 8
_SOON = datetime.timedelta(seconds=1)


def check_sum(group, ranks, what):
    """An all-reduce over the group's members gives the sum of theirs."""
    ours = testing.values(_rank, (5000,))
    dist.all_reduce(ours, group=group)
    testing.check_equal(ours, testing.total(ranks, (5000,)), what)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def notice(group, lost):
    """Calls of the group fail, soon, and name the rank; returns the error."""
    began = time.monotonic()
    try:
        while True:
            dist.all_reduce(torch.ones(5000), group=group)
    except dist.DistBackendError as error:
        assert f"origin: rank {lost} " in str(error), error
        assert time.monotonic() - began < _PATIENCE_S / 2, error
        return error


def shrinks(rank, size, victim):
    """The world, to those who are left; whoever is lost."""
    left = [r for r in range(size) if r != victim]
    dist.barrier()
    if rank == victim:
        die()
    lost = trnccl.lost_ranks(notice(None, victim))
    assert lost == [victim], lost
    dist.shrink_group(lost)
    assert dist.get_world_size() == size - 1
    assert dist.get_rank() == left.index(rank)
    check_sum(None, left, "the others")
    objects = [None] * len(left)
    dist.all_gather_object(objects, rank)
    assert objects == left
    check_sum(dist.new_group(), left, "a new group of theirs")


def shrinks_twice(rank, size):
    left = list(range(size))
    for victim in (1, 2):
        dist.barrier()
        if rank == victim:
            die()
        dist.shrink_group(
            trnccl.lost_ranks(notice(None, left.index(victim))))
        left.remove(victim)
        check_sum(None, left, f"without {victim}")


def shrinks_by_two(rank, size):
    """Lost at once: each of the others may have been told of either."""
    del size
    dist.barrier()
    if rank in (1, 4):
        die()
    try:
        while True:
            dist.all_reduce(torch.ones(5000))
    except dist.DistBackendError as error:
        lost = trnccl.lost_ranks(error, patience=_SOON)
    assert lost == [1, 4], lost
    dist.shrink_group(lost)
    check_sum(None, [0, 2, 3], "the others")


def misses_nobody(rank, size):
    """A call that failed for another reason has lost none, nor has a group of
    the same name that the store knew before."""
    store = c10d._get_default_store()
    error = dist.DistBackendError(f"{rank} of its own")
    for absent in (None, 2, None):
        if rank != absent:
            lost = trnccl.lost_ranks(error, patience=_SOON)
            assert lost == [r for r in range(size) if r == absent], lost
        dist.barrier()
        dist.destroy_process_group()
        dist.init_process_group("neuron", store=store, rank=rank,
                                world_size=size, timeout=testing.TIMEOUT)


def keeps_other_groups(rank, size):
    """A group that the victim isn't in knows nothing of it."""
    del size
    trio = dist.new_group([0, 1, 3])
    pair = dist.new_group([0, 3])
    alone = dist.new_group([2])
    dist.barrier()
    if rank == 1:
        die()
    if rank == 2:
        check_sum(alone, [2], "alone")
        notice(None, 1)
        check_sum(alone, [2], "alone, still")
        return
    notice(trio, 1)
    check_sum(pair, [0, 3], "beside a group that failed")
    small = dist.shrink_group([1], group=trio)
    check_sum(small, [0, 3], "shrunken")
    check_sum(pair, [0, 3], "beside a group that shrank")
    notice(None, 1)
    check_sum(small, [0, 3], "beside a world that failed")


def shrinks_amid_a_call(rank, size):
    """With SHRINK_ABORT, calls under way end at once."""
    del size
    pair = dist.new_group([0, 1])
    if rank == 0:
        never = dist.irecv(torch.ones(3), src=1, group=pair)
        small = dist.shrink_group([1], pair, c10d.SHRINK_ABORT)
        assert small.size() == 1
        testing.check_refused(dist.DistBackendError, never.wait, "abort")
        check_sum(small, [0], "alone")
    dist.barrier()


def exits(rank, size):
    """By sys.exit(), with groups left as they are."""
    del size
    dist.new_group()
    dist.barrier()
    if rank == 1:
        sys.exit(7)
    notice(None, 1)


def raises(rank, size):
    del size
    dist.new_group()
    dist.barrier()
    if rank == 1:
        sys.stderr = open(os.devnull, "w", encoding="ascii")
        raise KeyError("one rank's own")
    notice(None, 1)


def runs_another_program(rank, size):
    """By exec, which ends a rank without a word."""
    del size
    dist.barrier()
    if rank == 1:
        os.execv("/bin/true", ["/bin/true"])
    notice(None, 1)


def ends_groups_out_of_order(rank, size):
    """Each rank in an order of its own, calls of others under way."""
    groups = [dist.new_group() for _ in range(4)]
    works = [dist.all_reduce(torch.ones(5000), group=group, async_op=True)
             for group in groups]
    for work in works:
        work.wait()
    for i in range(len(groups)):
        dist.destroy_process_group(groups[(i + rank) % len(groups)])
        check_sum(None, size, "the world, meanwhile")


def under_torchrun(folder):
    """Adds up until all steps are made; rank 1 dies amid the first round."""
    # Nobody but itself ends a rank that's told of the loss.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    dist.init_process_group("neuron", timeout=testing.TIMEOUT)
    rank = dist.get_rank()
    first_round = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    saved = folder / "checkpoint.pt"
    state = {"step": 0, "sum": torch.zeros(3)}
    if not first_round:
        state = torch.load(saved)
    begun = state["step"]
    while state["step"] < _STEPS:
        if first_round and rank == 1 and state["step"] == _STEPS // 2:
            die()
        mine = torch.full((3,), float(rank + 1))
        try:
            dist.all_reduce(mine)
        except dist.DistBackendError as error:
            (folder / f"error_{rank}").write_text(str(error))
            raise
        state = {"step": state["step"] + 1, "sum": state["sum"] + mine}
        if rank == 0:
            torch.save(state, folder / "unfinished")
            os.replace(folder / "unfinished", saved)
    (folder / f"done_{rank}").write_text(f"{begun}; {state['sum'].tolist()}")
    dist.destroy_process_group()


def marked_processes(mark):
    """Those whose environment has it, as (pid, command)."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes():
                found.append((process.name,
                              (process / "cmdline").read_bytes()))
        except OSError:
            pass  # It has ended.
    return found


_rank = -1


def _run(body, rank, size, port, arguments):
    global _rank
    _rank = rank
    torch.set_num_threads(1)
    dist.init_process_group(
        "neuron", rank=rank, world_size=size, timeout=testing.TIMEOUT,
        store=dist.TCPStore("127.0.0.1", port, is_master=False))
    body(rank, size, *arguments)
    dist.destroy_process_group()


class Losses(testing.RanksTest):

    def run_body(self, body, size, codes, arguments=()):
        """The ranks must end by themselves; `codes` are those other than 0."""
        store = dist.TCPStore("127.0.0.1", 0, is_master=True,
                              wait_for_workers=False)
        context = multiprocessing.get_context("forkserver")
        ranks = [context.Process(
            target=_run, args=(body, rank, size, store.port, arguments))
            for rank in range(size)]
        for process in ranks:
            process.start()
        until = time.monotonic() + _PATIENCE_S
        for process in ranks:
            process.join(max(0, until - time.monotonic()))
        found = [process.exitcode for process in ranks]
        for process in ranks:
            process.kill()
        self.assertEqual(found, [codes.get(r, 0) for r in range(size)])

    def test_a_killed_rank_is_left_out_by_the_others(self):
        for size, victims in ((3, (0, 1)), (4, (1, 3))):
            for victim in victims:
                with self.subTest(size=size, victim=victim):
                    self.run_body(shrinks, size, {victim: _KILLED}, (victim,))

    def test_one_is_lost_after_another(self):
        self.run_body(shrinks_twice, 4, {1: _KILLED, 2: _KILLED})

    def test_several_are_lost_at_once(self):
        self.run_body(shrinks_by_two, 5, {1: _KILLED, 4: _KILLED})

    def test_none_is_lost_when_all_come(self):
        self.run_body(misses_nobody, 3, {})

    def test_other_groups_go_on(self):
        self.run_body(keeps_other_groups, 4, {1: _KILLED})

    def test_calls_under_way_are_aborted_on_request(self):
        self.run_body(shrinks_amid_a_call, 2, {})

    def test_all_end_when_one_exits(self):
        self.run_body(exits, 3, {1: 7})

    def test_all_end_when_one_raises(self):
        self.run_body(raises, 3, {1: 1})

    def test_all_end_when_one_runs_another_program(self):
        self.run_body(runs_another_program, 3, {})

    def test_groups_end_in_any_order(self):
        self.run_body(ends_groups_out_of_order, 3, {})

    def test_torchrun_restarts_a_job_that_lost_a_rank(self):
        size = 3
        with tempfile.TemporaryDirectory() as name:
            done = subprocess.run(
                [sys.executable, "-m", "torch.distributed.run", "--standalone",
                 "--max-restarts=1", f"--nproc-per-node={size}", __file__,
                 _TORCHRUN, name], timeout=2 * _PATIENCE_S, check=False,
                env={**os.environ, "OMP_NUM_THREADS": "1", _MARK: name,
                     "PYTHONPATH": os.path.dirname(os.path.abspath(__file__))})
            self.assertEqual(marked_processes(f"{_MARK}={name}"), [])
            self.assertEqual(done.returncode, 0)
            folder = pathlib.Path(name)
            for rank in (0, 2):
                error = (folder / f"error_{rank}").read_text()
                self.assertIn("origin: rank 1 ", error)
            for rank in range(size):
                begun, total = (folder / f"done_{rank}").read_text().split("; ")
                self.assertGreater(int(begun), 0)
                self.assertEqual(total, str([_STEPS * 6.0] * 3))


if __name__ == "__main__":
    if _TORCHRUN in sys.argv:
        under_torchrun(pathlib.Path(sys.argv[-1]))
    else:
        testing.main()
