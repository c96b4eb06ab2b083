#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""The backend under torch.distributed, between processes of this machine."""

import datetime

import testing  # First: it chooses the Python.
from testing import check_equal, values

import torch
import torch.distributed as dist


def layouts(rank, dtype):
    """The same values in each layout that users have."""
    dense = values(rank, (4, 6), dtype)
    yield "dense", dense
    yield "transposed", dense.t()
    yield "with an offset", torch.cat([dense, dense])[4:]
    yield "strided", dense.repeat_interleave(2, dim=1)[:, ::2]
    yield "of no dimension", dense[0, 0].clone()
    yield "empty", dense[:0]
    image = values(rank, (2, 3, 4, 5), dtype)
    yield "as images lie", image.permute(0, 2, 3, 1).contiguous().permute(
        0, 3, 1, 2)


def reductions(rank, size):
    for dtype in testing.REDUCED:
        for name, tensor in layouts(rank, dtype):
            what = f"{dtype} {name}"
            all_ranks = torch.stack([testing.wide(
                dict(layouts(r, dtype))[name]) for r in range(size)])
            wanted = all_ranks.sum(0)
            mine = tensor.clone(memory_format=torch.preserve_format)
            dist.all_reduce(mine)
            check_equal(mine, wanted, what)
            if not dtype.is_complex:
                mine = tensor.clone(memory_format=torch.preserve_format)
                dist.all_reduce(mine, op=dist.ReduceOp.MAX)
                check_equal(mine, all_ranks.amax(0), what)
            mine = tensor.clone(memory_format=torch.preserve_format)
            dist.reduce(mine, dst=size - 1)
            check_equal(mine, wanted if rank == size - 1 else tensor, what)
        part = torch.empty(5, dtype=dtype)
        whole = values(rank, (size * 5,), dtype)
        sums = testing.total(size, (size * 5,), dtype)
        dist.reduce_scatter_tensor(part, whole)
        check_equal(part, sums[rank * 5:rank * 5 + 5], dtype)
        # Part i has i + 1 elements.
        parts = [slice(i * (i + 1) // 2, (i + 1) * (i + 2) // 2)
                 for i in range(size)]
        part = torch.empty(rank + 1, dtype=dtype)
        dist.reduce_scatter(part, [whole[p] for p in parts])
        check_equal(part, sums[parts[rank]], dtype)
    mean = torch.full((3,), float(rank))
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    check_equal(mean, torch.full((3,), (size - 1) / 2), "avg")


def copies(rank, size):
    for dtype in testing.MOVED:
        mine = values(rank, (3, 2), dtype)
        everyone = [values(r, (3, 2), dtype) for r in range(size)]
        found = [torch.empty_like(mine) for _ in range(size)]
        dist.all_gather(found, mine)
        for one, wanted in zip(found, everyone):
            check_equal(one, wanted, dtype)
        flat = torch.empty(size * 3, 2, dtype=dtype)
        flat[rank * 3:rank * 3 + 3] = mine
        # In place, as FSDP2 calls it.
        dist.all_gather_into_tensor(flat, flat[rank * 3:rank * 3 + 3])
        check_equal(flat, torch.cat(everyone), dtype)
        for root in range(size):
            tensor = mine.clone()
            dist.broadcast(tensor, src=root)
            check_equal(tensor, everyone[root], dtype)
            found = [torch.empty_like(mine) for _ in range(size)]
            dist.gather(mine, found if rank == root else None, dst=root)
            if rank == root:
                for one, wanted in zip(found, everyone):
                    check_equal(one, wanted, dtype)
            tensor = torch.empty_like(mine)
            dist.scatter(tensor, everyone if rank == root else None, src=root)
            check_equal(tensor, mine, dtype)
        # Rank r sends r + d + 1 rows to rank d.
        sent = [rank + d + 1 for d in range(size)]
        rows = torch.cat([values(rank + d, (sent[d], 2), dtype)
                          for d in range(size)])
        output = torch.empty(sum(sent), 2, dtype=dtype)
        dist.all_to_all_single(output, rows, sent, sent)
        check_equal(output, torch.cat([values(s + rank, (s + rank + 1, 2),
                                              dtype) for s in range(size)]),
                    dtype)
        dist.barrier()


def messages(rank, size):
    following, before = (rank + 1) % size, (rank - 1) % size
    for count in (0, 1, 1000, 100_000):
        sends = dist.isend(values(rank, (count,)), following, tag=3)
        got = torch.empty(count)
        assert dist.recv(got, before, tag=3) == before
        sends.wait()
        check_equal(got, values(before, (count,)), count)
    if rank == 0:
        seen = set()
        for _ in range(size - 1):
            got = torch.empty(2)
            source = dist.recv(got, tag=4)
            check_equal(got, values(source, (2,)), source)
            seen.add(source)
        assert seen == set(range(1, size)), seen
    else:
        dist.send(values(rank, (2,)), 0, tag=4)
    got = torch.empty(4)
    for work in dist.batch_isend_irecv([
            dist.P2POp(dist.irecv, got, before),
            dist.P2POp(dist.isend, values(rank, (4,)), following)]):
        work.wait()
    check_equal(got, values(before, (4,)), "batch")
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(size)], objects


def asynchronous(rank, size):
    tensors = [values(rank, (1000 + i,)) for i in range(20)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    # They complete without anyone waiting.
    while not all(work.is_completed() for work in works):
        pass
    for i, tensor in enumerate(tensors):
        check_equal(tensor, testing.total(size, (1000 + i,)), i)
    turned = values(rank, (4, 6)).t()
    future = dist.all_reduce(turned, async_op=True).get_future()
    total = future.then(lambda f: f.value()[0].sum()).wait()
    assert total == testing.total(size, (4, 6)).sum()
    # A waiter's patience changes nothing.
    late = torch.empty(1)
    if rank == 0:
        work = dist.irecv(late, 1, tag=9)
        try:
            work.wait(datetime.timedelta(milliseconds=50))
            raise AssertionError("nobody has sent")
        except RuntimeError as error:
            assert "50 ms" in str(error), error
        dist.barrier()
        work.wait()
        assert late == 7
    else:
        dist.barrier()
        if rank == 1:
            dist.send(torch.full((1,), 7.0), 0, tag=9)


def groups(rank, size):
    for _ in range(3):
        evens = dist.new_group(list(range(0, size, 2)))
        if rank % 2 == 0:
            tensor = values(rank, (5,))
            dist.all_reduce(tensor, group=evens)
            check_equal(tensor, testing.total(range(0, size, 2), (5,)),
                        "evens")
            dist.destroy_process_group(evens)


def refusals(rank, size):
    for call in (
            lambda: dist.all_reduce(torch.ones(1).expand(4)),
            lambda: dist.all_gather([torch.empty(2)], torch.empty(2)),
            lambda: dist.all_to_all_single(torch.empty(4), torch.empty(4),
                                           [1, 1], [1, 1])):
        testing.check_refused(ValueError, call)
    # Nothing was lost.
    tensor = values(rank, (2,))
    dist.all_reduce(tensor)
    check_equal(tensor, testing.total(size, (2,)), "after refusals")


def training(rank, size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    torch.manual_seed(3)
    plain = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.ReLU(),
                                torch.nn.Linear(16, 4))
    data = torch.randn(size * 8, 12)
    loss = plain(data).pow(2).mean()
    loss.backward()
    import copy
    mine = data[rank * 8:rank * 8 + 8]
    ddp = torch.nn.parallel.DistributedDataParallel(copy.deepcopy(plain))
    ddp.zero_grad()
    ddp(mine).pow(2).mean().backward()
    for one, other in zip(plain.parameters(), ddp.parameters()):
        torch.testing.assert_close(other.grad, one.grad)
    sharded = copy.deepcopy(plain)
    sharded.zero_grad()
    mesh = init_device_mesh("cpu", (size,))
    fully_shard(sharded, mesh=mesh)
    sharded(mine).pow(2).mean().backward()
    for one, other in zip(plain.parameters(), sharded.parameters()):
        torch.testing.assert_close(other.grad.full_tensor(), one.grad)


class Backend(testing.RanksTest):

    def test_reduces_and_moves_every_type_and_layout(self):
        self.check(reductions, copies, messages, sizes=(2, 3))

    def test_completes_by_itself_refuses_and_goes_on(self):
        self.check(asynchronous, refusals)

    def test_makes_and_ends_groups(self):
        self.check(groups, sizes=(4,))

    def test_trains_as_one_process_would(self):
        self.check(training)

    def test_has_its_other_names(self):
        for backend in testing.NAMES[1:]:
            self.check(groups, backend=backend)


if __name__ == "__main__":
    testing.main()
