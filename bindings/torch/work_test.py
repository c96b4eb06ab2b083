#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""What calls return: completion unaided, futures, callbacks that call."""

import testing  # First: it chooses the Python.

import datetime
import gc
import time
import weakref

import numpy
import torch
import torch.distributed as dist

from operations import OPERATIONS, Case, finish
from testing import check_equal, check_refused, total, values


def every_call_can_be_awaited_in_every_way(rank, size):
    number = 0
    for operation in OPERATIONS.values():
        for waits in ("wait", "poll", "future"):
            for shape in ((5, 4), (300, 400)):
                number += 1
                finish(operation(Case(
                    rank, tuple(range(size)), shape=shape, number=number,
                    asynchronous=True, waits=waits, root=number % size,
                    layout=("dense", "strided")[number % 2])))


def futures_have_the_outputs(rank, size):
    """Of each call, as lists of tensors, which are the user's own."""
    mine, parts = values(rank, (6,)), list(torch.zeros(size, 6))
    flat = torch.zeros(size * 6)
    peer = size - 1 - rank
    batch = dist.batch_isend_irecv if rank != peer else None
    calls = [(dist.all_reduce, (mine,), [mine]),
             (dist.broadcast, (mine, 0), [mine]),
             (dist.all_gather, (parts, mine), parts),
             (dist.all_gather_into_tensor, (flat, mine), [flat]),
             (dist.reduce_scatter_tensor, (mine, flat), [mine]),
             (dist.all_to_all_single, (mine[:size], flat[:size]),
              [mine[:size]])]
    for call, arguments, outputs in calls:
        work = call(*arguments, async_op=True)
        found = work.get_future().wait()
        found = found if isinstance(found, list) else [found]
        assert [t.data_ptr() for t in found] == [
            t.data_ptr() for t in outputs], call
        assert [t.data_ptr() for t in work.result()] == [
            t.data_ptr() for t in outputs], call
    dist.barrier(async_op=True).get_future().wait()
    if batch:
        found = torch.empty(6)
        for work in batch([dist.P2POp(dist.isend, mine, peer),
                           dist.P2POp(dist.irecv, found, peer)]):
            work.get_future().wait()
        work = dist.irecv(found, peer)
        dist.isend(values(rank, (6,)), peer).get_future().wait()
        assert work.get_future().wait()[0].data_ptr() == found.data_ptr()
        check_equal(found, values(peer, (6,)), "by a future")


def chains_run_and_carry_exceptions(rank, size):
    mine = values(rank, (50,))
    chain = dist.all_reduce(mine, async_op=True).get_future().then(
        lambda future: future.value()[0] / size).then(
            lambda future: future.value() + 1)
    check_equal(chain.wait(), total(size, (50,)) / size + 1, "chain")

    def fails(future):
        raise KeyError("mine")

    chain = dist.all_reduce(mine, async_op=True).get_future().then(fails)
    check_refused((KeyError, RuntimeError), chain.wait, "mine")
    if rank == 0:
        dist.send(mine, 1)
    elif rank == 1:
        work = dist.irecv(torch.empty(51), 0)
        check_refused(Exception, work.get_future().wait, "50", "51")
        check_refused(Exception, work.get_future().then(
            lambda future: future.value()).wait, "50", "51")
        assert not work.is_success()
    # One future, however often it's asked for.
    for i in range(500):
        work = dist.all_reduce(mine[:1], async_op=True)
        futures = [work.get_future() for _ in range(3)]
        assert all(future.wait()[0] is not None for future in futures), i


def callbacks_may_call_and_wait(rank, size):
    """As hooks of gradients do; whoever is late, and however deeply."""
    store = dist.distributed_c10d._get_default_store()
    for late in range(size):
        tensors = [values(rank + 8 * i, (1000,)) for i in range(3)]
        first, second, third = tensors

        def blocks(future, third=third):
            dist.all_reduce(third)
            return third

        def waits(future, second=second, blocks=blocks):
            inner = dist.all_reduce(second, async_op=True).get_future()
            return inner.then(blocks).wait()

        if rank == late:
            store.wait([f"{late}/{r}" for r in range(size) if r != late])
        outer = dist.all_reduce(first, async_op=True).get_future()
        other = dist.all_reduce(torch.ones(1), async_op=True).get_future()
        chain = outer.then(waits)
        crossed = outer.then(lambda future, other=other: other.wait())
        store.set(f"{late}/{rank}", "its callbacks are there")
        chain.wait()
        crossed.wait()
        for i, tensor in enumerate(tensors):
            check_equal(tensor, sum(values(r + 8 * i, (1000,))
                                    for r in range(size)), i)


def _memory_of(shape):
    """A tensor, and what tells when its memory is free."""
    array = numpy.zeros(shape, numpy.float32)
    return torch.from_numpy(array), weakref.ref(array)


def tensors_live_as_long_as_their_calls(rank, size):
    """Not shorter, whoever drops what; nor longer."""
    store = dist.distributed_c10d._get_default_store()
    before = (rank - 1) % size
    tensor, memory = _memory_of((30_000,))
    strided, other_memory = _memory_of((300, 400))
    dist.irecv(tensor, before, tag=1)
    dist.irecv(strided.t(), before, tag=2)
    del tensor, strided
    gc.collect()
    assert memory() is not None and other_memory() is not None
    dist.barrier()
    dist.send(values(rank, (30_000,)), (rank + 1) % size, tag=1)
    dist.send(values(rank, (400, 300)), (rank + 1) % size, tag=2)
    until = time.monotonic() + 20
    while memory() is not None or other_memory() is not None:
        assert time.monotonic() < until, "never freed"
        gc.collect()
    # A group that ends waits for its calls, until their deadline.
    group = dist.new_group(timeout=datetime.timedelta(seconds=1))
    tensor, memory = _memory_of((10,))
    work = dist.irecv(tensor, group=group, group_src=before)
    future = work.get_future()
    dist.destroy_process_group(group)
    check_refused(RuntimeError, work.wait, "")
    check_refused(RuntimeError, future.wait, "")
    del tensor, work, future
    gc.collect()
    assert memory() is None, "kept after its group"


class Work(testing.RanksTest):

    def test_calls_complete_and_tell(self):
        self.check(every_call_can_be_awaited_in_every_way,
                   futures_have_the_outputs, chains_run_and_carry_exceptions,
                   callbacks_may_call_and_wait,
                   tensors_live_as_long_as_their_calls, sizes=(2, 3))


if __name__ == "__main__":
    testing.main()
