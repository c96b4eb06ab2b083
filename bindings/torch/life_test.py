#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""How groups begin, go on after errors, rest and end; deadlines; memory."""

import datetime
import os

import testing  # First: it finds Python and the package.

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from trnccl import _C

_SECOND = datetime.timedelta(seconds=1)


def _backend(group=None):
    group = group or dist.group.WORLD
    return group._get_backend(torch.device("cpu"))


def _check_alive(size, what):
    tensor = testing.values(dist.get_rank(), (5,))
    dist.all_reduce(tensor)
    testing.check_equal(tensor, testing.total(size, (5,)), what)


def blocks_that_raise(rank, size):
    """An exception within a block of coalesced calls costs the block only."""
    following = (rank + 1) % size

    def raises():
        with c10d._coalescing_manager(device=torch.device("cpu")):
            dist.isend(torch.ones(3), following)
            raise KeyError("mine")

    testing.check_refused(KeyError, raises, "mine")
    _check_alive(size, "after the user's exception")
    works = []

    def waits_within():
        with c10d._coalescing_manager(device=torch.device("cpu")):
            works.append(dist.all_to_all_single(
                torch.empty(size), torch.ones(size), async_op=True))
            works[0].wait()

    testing.check_refused(RuntimeError, waits_within, "at the block's end")
    testing.check_refused(RuntimeError, works[0].wait, "before it was started")
    testing.check_refused(RuntimeError, works[0].get_future().wait,
                          "before it was started")
    _check_alive(size, "after waiting within a block")

    def mixes():
        with c10d._coalescing_manager():
            dist.all_reduce(torch.ones(3))
            dist.all_gather_into_tensor(torch.empty(3 * size), torch.ones(3))

    testing.check_refused(RuntimeError, mixes, "mixed types")
    _check_alive(size, "after mixed calls")
    testing.check_refused(
        ValueError, lambda: dist.batch_isend_irecv([
            dist.P2POp(dist.isend, torch.ones(3), following),
            dist.P2POp(dist.irecv, torch.ones(1).expand(3), following)]))
    _check_alive(size, "after a refused batch")


def blocks(rank, size):
    """Coalesced calls give what each alone would."""
    tensors = [testing.values(rank, (count,)) for count in (1, 7, 5000)]
    with c10d._coalescing_manager(async_ops=True) as block:
        for tensor in tensors:
            dist.all_reduce(tensor)
    block.wait()
    for tensor in tensors:
        testing.check_equal(
            tensor, testing.total(size, tuple(tensor.shape)), "all_reduce")
    gathered = [torch.empty(size * count) for count in (1, 7)]
    with c10d._coalescing_manager():
        for output in gathered:
            dist.all_gather_into_tensor(
                output, testing.values(rank, (len(output) // size,)))
    for output in gathered:
        shape = (len(output) // size,)
        testing.check_equal(output, torch.cat(
            [testing.values(r, shape) for r in range(size)]), "all_gather")
    columns = [torch.empty(size) for _ in range(3)]
    with c10d._coalescing_manager(device=torch.device("cpu")):
        for column in columns:
            dist.all_to_all_single(column, torch.arange(size) + 10.0 * rank)
    for column in columns:
        testing.check_equal(column, rank + 10.0 * torch.arange(size),
                            "all_to_all")
    parts = [torch.empty(count) for count in (1, 7)]
    with c10d._coalescing_manager():
        for part in parts:
            dist.reduce_scatter_tensor(
                part, testing.values(rank, (size * len(part),)))
    for part in parts:
        wanted = testing.total(size, (size * len(part),))
        testing.check_equal(part, wanted.chunk(size)[rank], "reduce_scatter")


def deadlines(rank, size):
    """A call's own deadline holds, and a group's new one; the error names who
    is waited for."""
    del size
    for asynchronous in (False, True):
        group = dist.new_group()
        if rank == 0:
            def reduces(group=group, asynchronous=asynchronous):
                options = dist.AllreduceOptions()
                options.timeout = _SECOND
                options.asyncOp = asynchronous
                group.allreduce([torch.ones(1)], options).wait()

            testing.check_refused(dist.DistBackendError, reduces, "rank 0",
                                  "all_reduce", "rank 1", "1000 ms")
        dist.barrier()
    for live in (True, False):
        for set_timeout in (
                lambda group: c10d._set_pg_timeout(_SECOND, group),
                lambda group: _backend(group)._set_default_timeout(_SECOND),
                lambda group: group.set_timeout(_SECOND)):
            group = dist.new_group()
            if live:
                dist.barrier(group=group)
            set_timeout(group)
            if rank == 0:
                testing.check_refused(
                    dist.DistBackendError, lambda group=group: dist.broadcast(
                        torch.ones(1), 1, group=group), "broadcast", "1000 ms")
            dist.barrier()


def patience(rank, size):
    """That of a waiter changes nothing, in calls of all kinds."""
    short = datetime.timedelta(milliseconds=30)
    mine, gathered = torch.ones(5), [torch.empty(5) for _ in range(size)]
    got = torch.empty(5)

    def block():
        with c10d._coalescing_manager(async_ops=True) as started:
            dist.all_reduce(mine)
        return started.works[0]

    store = c10d._get_default_store()
    for number, start in enumerate((
            lambda: dist.all_reduce(mine, async_op=True),
            lambda: dist.all_gather(gathered, mine, async_op=True),
            lambda: dist.barrier(async_op=True),
            block,
            lambda: dist.irecv(got, 1) if rank == 0 else
            dist.isend(mine, 0))):
        if rank != 0:
            store.wait([f"waited {number}"])
        work = start()
        if rank == 0:
            for _ in range(3):
                testing.check_refused(RuntimeError, lambda work=work: work.wait(
                    short), "30 ms", "goes on")
            store.set(f"waited {number}", "1")
        work.wait()
    _check_alive(size, "after impatience")


def sparse_sums(rank, size):
    """Sparse tensors add up, whatever entries each rank has."""
    def mine(rank):
        torch.manual_seed(rank)
        dense = testing.values(rank, (6, 3)) * (torch.rand(6, 1) < 0.5)
        return dense if rank != 1 else torch.zeros(6, 3)

    wanted = sum(mine(r) for r in range(size))
    for sparse_dimensions in (1, 2):
        tensor = mine(rank).to_sparse(sparse_dimensions)
        dist.all_reduce(tensor)
        testing.check_equal(tensor.to_dense(), wanted, "blocking")
        tensor = mine(rank).to_sparse(sparse_dimensions)
        future = dist.all_reduce(tensor, async_op=True).get_future()
        testing.check_equal(future.wait()[-1].to_dense(), wanted, "future")
    testing.check_refused(
        ValueError, lambda: dist.all_reduce(torch.eye(2 + rank).to_sparse()),
        "another shape")
    testing.check_refused(
        ValueError, lambda: dist.all_reduce(torch.eye(2).to_sparse(),
                                            op=dist.ReduceOp.MAX), "sums")
    _check_alive(size, "after refused sparse tensors")


def rests(rank, size):
    """A group that's suspended says so, and works again once resumed."""
    del rank
    backend = _backend()
    for _ in range(2):
        dist.barrier()
        backend.suspend()
        testing.check_refused(RuntimeError,
                              lambda: dist.all_reduce(torch.ones(1)), "shut")
        backend.resume()
        _check_alive(size, "resumed")


def memory(rank, size):
    """Tensors of the group's allocator are reused, and reduce as others do."""
    backend = _backend()
    assert backend.supports_tensor_alloc(torch.device("cpu"))

    def allocate():
        return backend.allocate_tensor(3000, dtype=torch.float32,
                                       device=torch.device("cpu"))

    tensor = allocate()
    address = tensor.data_ptr()
    used = backend.memory_stats()["used_bytes"]
    assert used >= 12000, used
    tensor.copy_(testing.values(rank, (3000,)))
    dist.all_reduce(tensor)
    testing.check_equal(tensor, testing.total(size, (3000,)), "shared memory")
    del tensor
    assert backend.memory_stats()["used_bytes"] < used
    assert allocate().data_ptr() == address
    many = [allocate() for _ in range(20)]
    del many
    statistics = backend.memory_stats()
    assert statistics["kept_bytes"] <= 20 * 16384, statistics


def options_copy(rank, size):
    """Options may be copied, and a copy is another's."""
    import copy
    del rank, size
    options = _backend().options
    for made in (copy.copy(options), copy.deepcopy(options)):
        made._timeout = _SECOND
        assert options._timeout != _SECOND
        assert made.group_name == options.group_name
        assert made.backend == options.backend


class Life(testing.RanksTest):

    def test_groups_outlive_errors(self):
        self.check(blocks, blocks_that_raise, sparse_sums, rests, memory,
                   options_copy, sizes=(3,))

    def test_deadlines_hold(self):
        self.check(deadlines, patience)

    def test_a_stale_address_in_the_store_is_passed_by(self):
        """What a run that ended badly left there, rank 0 replaces."""
        import multiprocessing
        import tempfile
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "store")
            context = multiprocessing.get_context("forkserver")
            ranks = [context.Process(target=_join_late, args=(file, rank))
                     for rank in range(2)]
            for process in ranks:
                process.start()
            for process in ranks:
                process.join()
            self.assertEqual([0, 0], [p.exitcode for p in ranks])


def _make(store, rank, timeout=testing.TIMEOUT):
    return _C.make(store, rank, 2, _C.Options("neuron", timeout))


def _join_late(file, rank):
    """Rank 1 finds an address that nobody is at; rank 0 comes when it has."""
    store = dist.FileStore(file, 2)
    if rank == 0:
        # A group whose rank 1 never came leaves its address behind.
        testing.check_refused(
            dist.DistBackendError,
            lambda: _make(store, 0, datetime.timedelta(milliseconds=1)))
        store.set("stale", "1")
        store.wait(["found"])
        group = _make(store, 0)
    else:
        store.wait(["stale"])
        store.set("found", "1")
        group = _make(store, 1)
    tensor = torch.full((3,), float(rank))
    group.allreduce([tensor], dist.AllreduceOptions()).wait()
    assert tensor.tolist() == [1.0] * 3
    group.shutdown()


if __name__ == "__main__":
    testing.main()
