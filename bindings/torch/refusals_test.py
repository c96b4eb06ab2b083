#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""What can't be done is said: by whom, in which call, and without harm."""

import testing  # First: it chooses the Python.

import datetime
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from operations import LAYOUTS, OPERATIONS, Case, finish
from testing import check_equal, check_refused, total, values

_HERE = pathlib.Path(__file__).resolve().parent
_CPU = torch.device("cpu")


def _check_alive(rank, size, group=None):
    tensor = values(rank, (9,))
    dist.all_reduce(tensor, group=group)
    check_equal(tensor, total(size, (9,)), "afterwards")


def _mismatches(odd, size, group, count):
    """Calls that differ on the odd rank: their arguments, then their kind."""
    half = count // 2
    ones = torch.ones(count)
    mine = ones[:half] if odd else ones
    other = (lambda a, b: a) if odd else (lambda a, b: b)
    operators = dist.ReduceOp

    def reduces(tensor, op=operators.SUM):
        return lambda: dist.all_reduce(tensor, op=op, group=group)

    yield "count", reduces(mine)
    yield "count by one", reduces(ones[:count - odd])
    yield "type", reduces(other(ones.int(), ones))
    yield "width of type", reduces(other(ones.double(), ones))
    yield "operator", reduces(ones, other(operators.MAX, operators.SUM))
    yield "root", lambda: dist.broadcast(ones, group_src=int(odd), group=group)
    yield "root of reduce", lambda: dist.reduce(ones, group_dst=int(odd),
                                                group=group)
    yield "broadcast's count", lambda: dist.broadcast(mine, group_src=0,
                                                      group=group)
    yield "all_gather's count", lambda: dist.all_gather_into_tensor(
        torch.empty(size * len(mine)), mine, group=group)
    yield "reduce_scatter's count", lambda: dist.reduce_scatter_tensor(
        torch.empty(len(mine)), torch.ones(size * len(mine)), group=group)
    yield "all_to_all's count", lambda: dist.all_to_all_single(
        torch.empty(size * len(mine)), torch.ones(size * len(mine)),
        group=group)
    yield "all_gather's list", lambda: dist.all_gather(
        [torch.empty(count + (i == size - 1 and not odd))
         for i in range(size)],
        ones, group=group)
    yield "gather's count", lambda: dist.gather(
        mine, [torch.empty(count) for _ in range(size)]
        if dist.get_rank(group) == 0 else None, group_dst=0, group=group)
    yield "scatter's count", lambda: dist.scatter(
        torch.empty(len(mine)), [ones] * size if dist.get_rank(group) == 0
        else None, group_src=0, group=group)
    yield "kind", other(lambda: dist.broadcast(ones, group_src=0, group=group),
                        reduces(ones))
    yield "kind, to all", other(lambda: dist.all_gather_into_tensor(
        torch.empty(size * count), ones, group=group), reduces(ones))
    yield "a barrier", other(lambda: dist.barrier(group=group), reduces(ones))


def calls_that_differ_fail_on_every_rank(rank, size):
    """In the call, or in the next for a rank that needed nothing of others."""
    odd, began = rank == size - 1, time.monotonic()
    for count in (8, 200_000):
        for number in range(len(list(_mismatches(odd, size, None, count)))):
            group = dist.new_group()
            name, call = list(_mismatches(odd, size, group, count))[number]
            try:
                call()
                text = check_refused(RuntimeError, lambda: dist.all_reduce(
                    torch.ones(1), group=group))
            except dist.DistBackendError as error:
                text = str(error)
            assert "ranks disagree" in text, (name, count, text)
            # Two are named, with their calls.
            named = re.findall(r"rank (\d+) (?:is )?in \w+ #\d", text)
            assert len(set(named)) == 2, (name, text)
            check_refused(RuntimeError, lambda: dist.barrier(group=group),
                          "ranks disagree")
    assert time.monotonic() - began < 60
    _check_alive(rank, size)


def refused_calls_leave_no_trace(rank, size):
    """On one rank alone: nothing was sent, so the others don't wait."""
    mine = values(rank, (4,))
    for number, call in enumerate((
            lambda: dist.all_reduce(mine > 0, op=dist.ReduceOp.AVG),
            lambda: dist.all_reduce(mine, op=dist.ReduceOp.BAND),
            lambda: dist.all_reduce(mine.to(torch.float8_e4m3fnuz)),
            lambda: dist.all_reduce(mine[:1].expand(4)),
            lambda: dist.broadcast(mine, src=size),
            lambda: dist.all_gather([torch.empty(4)] * (size + 1), mine),
            lambda: dist.all_gather([], mine),
            lambda: dist.gather(mine, [], dst=rank),
            lambda: dist.scatter(mine, [], src=rank),
            lambda: dist.reduce_scatter(mine, []),
            lambda: dist.reduce_scatter_tensor(mine, mine[:3]),
            lambda: dist.all_gather_into_tensor(mine, mine),
            lambda: dist.all_reduce_coalesced([]),
            lambda: dist.send(mine, size))):
        if rank == number % size:
            check_refused((ValueError, NotImplementedError), call)
        check_equal(mine, values(rank, (4,)), number)
        _check_alive(rank, size)
    backend = dist.group.WORLD._get_backend(_CPU)
    for call in (lambda: backend.allreduce([]),
                 lambda: backend.allgather([], [mine]),
                 lambda: backend.allgather([[mine]], []),
                 lambda: backend.reduce_scatter([mine], []),
                 lambda: backend.send([], 0, 0),
                 lambda: backend.recv([], 0, 0)):
        check_refused(ValueError, call)
    _check_alive(rank, size)


def _refusals(bad, size, group):
    """One a collective: its call, and why a bad rank's is refused.

    The bad one is rank 1, whom others need.
    """
    backend = group._get_backend(_CPU)
    ones = torch.ones(6)
    parts = [torch.ones(6) for _ in range(size)]
    written = torch.ones(1).expand(6) if bad else torch.ones(6)
    outputs = [ones] * size if bad else parts
    whole = torch.ones(6 * size + bad)
    broadcast, scatter = dist.BroadcastOptions(), dist.ScatterOptions()
    broadcast.rootRank = scatter.rootRank = 1
    gather = dist.GatherOptions()
    gather.rootRank = 0
    root = dist.get_rank(group) == 0
    shared, due = "share memory", "elements are due"
    yield shared, lambda: dist.all_reduce(written, group=group)
    yield "sums", lambda: dist.all_reduce(
        torch.eye(3).to_sparse(), group=group,
        op=dist.ReduceOp.MAX if bad else dist.ReduceOp.SUM)
    yield shared, lambda: dist.all_reduce_coalesced([ones, written],
                                                    group=group)
    yield "takes one tensor", lambda: backend.broadcast(
        [ones, ones] if bad else [ones], broadcast).wait()
    yield "not reduced", lambda: dist.reduce(
        ones.to(torch.float8_e4m3fnuz) if bad else ones, 0, group=group)
    yield shared, lambda: dist.all_gather(outputs, ones, group=group)
    yield due, lambda: dist.all_gather_into_tensor(whole, ones, group=group)
    yield shared, lambda: group.allgather_coalesced(
        [[output] for output in outputs], [ones]).wait()
    yield due, lambda: group.allgather_into_tensor_coalesced(
        [whole], [ones]).wait()
    yield "needs 0 outputs", lambda: backend.gather(
        [parts] if root or bad else [], [ones], gather).wait()
    yield "needs 3 inputs", lambda: backend.scatter(
        [ones], [parts[:2]] if bad else [], scatter).wait()
    yield shared, lambda: dist.reduce_scatter(written, parts, group=group)
    yield due, lambda: dist.reduce_scatter_tensor(ones, whole, group=group)
    yield due, lambda: group.reduce_scatter_tensor_coalesced(
        [ones], [whole]).wait()
    yield "isn't a multiple", lambda: dist.all_to_all_single(
        torch.empty_like(whole), whole, group=group)
    yield shared, lambda: dist.all_to_all(outputs, parts, group=group)


def refused_calls_are_told_to_the_others(rank, size):
    """Who waits for the one that refused fails, and says who and why."""
    worst = 0.0
    for number in range(len(list(_refusals(False, size, dist.group.WORLD)))):
        group = dist.new_group()
        bad = rank == 1
        why, call = list(_refusals(bad, size, group))[number]
        began = time.monotonic()
        if bad:
            check_refused((ValueError, NotImplementedError), call, why)
        else:
            # Who needs nothing of rank 1 learns of it by the next call.
            check_refused(
                dist.DistBackendError,
                lambda: (call(), dist.barrier(group=group)), "rank 1 (host",
                "has refused its own call", why, "origin: rank 1 ")
        worst = max(worst, time.monotonic() - began)
        dist.barrier()
        # What has failed already isn't failed again.
        check_refused((ValueError, NotImplementedError, RuntimeError), call)
        check_refused(dist.DistBackendError, lambda: dist.barrier(
            group=group), "has refused its own call", "origin: rank 1 ")
    print(f"rank {rank}: learned within {worst:.2f} s")
    _check_alive(rank, size)


def refusals_in_blocks_are_told_too(rank, size):
    group = dist.new_group()
    rows = size + (rank == 1)

    def block():
        with dist.distributed_c10d._coalescing_manager(group, _CPU):
            for count in (size, rows):
                dist.all_to_all_single(torch.empty(count), torch.ones(count),
                                       group=group)

    if rank == 1:
        check_refused(ValueError, block, "isn't a multiple")
    else:
        check_refused(dist.DistBackendError, block, "rank 1 (host",
                      "has refused its own call", "isn't a multiple")
    _check_alive(rank, size)


def refused_messages_are_told_to_their_peer(rank, size):
    shared = torch.ones(1).expand(160_000)
    long = torch.ones(160_000)

    def batch(*ops):
        for work in dist.batch_isend_irecv(list(ops)):
            work.wait()

    for why, refused, matching in (
            ("takes one tensor",
             lambda g: g._get_backend(_CPU).send([long, long], 0, 5),
             lambda g: dist.recv(long, group=g, group_src=1, tag=5)),
            ("share memory",
             lambda g: dist.recv(shared, group=g, group_src=0, tag=5),
             lambda g: dist.send(long, group=g, group_dst=1, tag=5)),
            ("share memory", lambda g: dist.recv(shared, group=g, tag=5),
             lambda g: dist.isend(long, group=g, group_dst=1, tag=5).wait()),
            # The send of the block is never started.
            ("raised an exception", lambda g: batch(
                dist.P2POp(dist.isend, long, group=g, group_peer=0, tag=5),
                dist.P2POp(dist.irecv, shared, group=g, group_peer=2, tag=5)),
             lambda g: batch(
                dist.P2POp(dist.irecv, long, group=g, group_peer=1, tag=5)))):
        group = dist.new_group()
        dist.barrier(group=group)
        began = time.monotonic()
        if rank == 1:
            check_refused((ValueError, NotImplementedError, RuntimeError),
                          lambda: refused(group))
        elif rank == 0:
            check_refused(dist.DistBackendError, lambda: matching(group),
                          "rank 1 (host", "has refused its own call", why,
                          "tag 5", "origin: rank 1 ")
            assert time.monotonic() - began < 10
        dist.barrier()
    _check_alive(rank, size)


def calls_that_all_refuse_harm_nothing(rank, size):
    for _ in range(3):
        check_refused(ValueError, lambda: dist.all_reduce(
            torch.ones(1).expand(4)), "share memory")
        _check_alive(rank, size)


def waiting_says_for_whom(rank, size):
    """The error of a call whose peer doesn't come: who, what, how long."""
    second = datetime.timedelta(seconds=1)
    for what, call in (
            ("all_reduce #1", lambda g: dist.all_reduce(mine, group=g)),
            ("barrier #1", lambda g: dist.barrier(group=g)),
            ("tag 5", lambda g: dist.recv(mine, group=g, group_src=1, tag=5)),
            ("tag 6", lambda g: dist.irecv(mine, group=g, group_src=1,
                                           tag=6).wait())):
        mine = values(rank, (40_000,))
        group = dist.new_group(timeout=second)
        if rank != 1:
            began = time.monotonic()
            text = check_refused(dist.DistBackendError, lambda: call(group),
                                 what, f"rank {rank}", "rank 1", "1000 ms")
            assert 0.5 < time.monotonic() - began < 20, text
        dist.barrier()
    _check_alive(rank, size)


class _Calls(Dataset):
    """What a worker process sees of its parent's group."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        try:
            dist.all_reduce(torch.ones(1))
            return index, "no error"
        except RuntimeError as error:
            return index, str(error)


def children_are_told_that_they_are_children(rank, size):
    _check_alive(rank, size)
    works = [dist.all_reduce(torch.ones(5), async_op=True) for _ in range(9)]
    loader = DataLoader(_Calls(), num_workers=2, batch_size=2,
                        multiprocessing_context="fork", timeout=30)
    seen = [(int(i), text) for numbers, texts in loader
            for i, text in zip(numbers, texts)]
    assert [i for i, _ in seen] == list(range(8)), seen
    for _, text in seen:
        assert "fork" in text, text
    for work in works:
        work.wait()
    _check_alive(rank, size)
    # A child that ends as programs do, and one that another program replaces.
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            dist.destroy_process_group()
        finally:
            os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    listed = subprocess.run(
        [sys.executable, "-c", "import os\nfor f in os.listdir('/proc/self/fd')"
         ":\n  p = '/proc/self/fd/' + f\n  print(os.path.exists(p) and "
         "os.readlink(p))"], capture_output=True, text=True, close_fds=False)
    assert "trnccl" not in listed.stdout and "pidfd" not in listed.stdout
    assert "socket" not in listed.stdout, listed.stdout
    _check_alive(rank, size)


def groups_of_one_do_everything(rank, size):
    number = 0
    for operation in OPERATIONS.values():
        for layout in LAYOUTS:
            for rows in ((), (3,)):
                number += 1
                finish(operation(Case(0, (0,), layout=layout, rows=rows,
                                      number=number,
                                      asynchronous=number % 2 == 0)))
    inputs = [values(i, (5,)) for i in range(3)]
    outputs = [torch.empty(5) for _ in inputs]
    world = dist.group.WORLD
    for call in (world.reduce_scatter_tensor_coalesced,
                 world.allgather_into_tensor_coalesced):
        call(outputs, inputs).wait()
        for wanted, found in zip(inputs, outputs):
            check_equal(found, wanted, call)
            found.zero_()
    world.allgather_coalesced([outputs], inputs).wait()
    for wanted, found in zip(inputs, outputs):
        check_equal(found, wanted, "coalesced lists")
    world.monitored_barrier()
    _check_alive(rank, size)


class Refusals(testing.RanksTest):

    def test_calls_that_differ_fail_on_every_rank(self):
        self.check(calls_that_differ_fail_on_every_rank, sizes=(2, 3))

    def test_refusals_and_waits_say_what_is_wrong(self):
        self.check(refused_calls_leave_no_trace, waiting_says_for_whom,
                   children_are_told_that_they_are_children, sizes=(3,))

    def test_a_refusal_on_one_rank_ends_the_others_calls(self):
        self.check(refused_calls_are_told_to_the_others,
                   refusals_in_blocks_are_told_too,
                   refused_messages_are_told_to_their_peer,
                   calls_that_all_refuse_harm_nothing, sizes=(3,))

    def test_groups_of_one_do_everything(self):
        self.check(groups_of_one_do_everything, sizes=(1,))

    def test_every_virtual_of_the_interface_is_overridden(self):
        """But for what there's nothing to do for on a CPU."""
        header = pathlib.Path(torch.__file__).parent / "include" / "torch" / \
            "csrc" / "distributed" / "c10d" / "Backend.hpp"
        virtuals = re.findall(r"virtual\s[^;{(]*?(\w+)\(", header.read_text())
        self.assertGreater(len(virtuals), 45)
        ours = (_HERE / "process_group.h").read_text()
        renamed = (_HERE / "torch_names.h").read_text()
        for macro, name in re.findall(r"#define (C10D_\w+) (\w+)", renamed):
            ours = re.sub(rf"\b{macro}\b", name, ours)
        missing = {name for name in virtuals if not re.search(
            rf"\b{name}\([^;{{]*override", ours)}
        self.assertLessEqual(missing, {
            "supportsTimeEstimation", "eagerConnectSingleDevice",
            "setGroupUid"})


if __name__ == "__main__":
    testing.main()
