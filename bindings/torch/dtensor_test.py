#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""DTensor on the backend: placements, uneven shards, operators."""

import testing  # First: it finds Python and the package.

import itertools

import torch
import torch.distributed as dist
import torch.distributed.tensor as dtensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import (DTensor, Partial, Replicate, Shard,
                                      distribute_module, distribute_tensor)

_REDUCTIONS = ("sum", "avg", "max", "min")


def folded(parts, reduction):
    """What partial tensors of all ranks stand for."""
    stack = torch.stack(parts).double()
    return {"sum": stack.sum(0), "avg": stack.mean(0), "max": stack.amax(0),
            "min": stack.amin(0)}[reduction]


def share(tensor, dim, parts, index):
    """The part that DTensor gives to one of `parts` ranks."""
    chunks = list(tensor.chunk(parts, dim))
    empty = tensor.narrow(dim, 0, 0)
    return (chunks + [empty] * (parts - len(chunks)))[index]


def check_local(tensor, wanted, placement, rank, size):
    """The rank's own part is the one that its placement says."""
    if isinstance(placement, Shard):
        wanted = share(wanted, placement.dim, size, rank)
    testing.check_equal(tensor.to_local(), wanted, placement)


def distributes(rank, size):
    mesh = init_device_mesh("cpu", (size,))
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool,
                  torch.complex64):
        for shape in ((7, 6), (3, 2), (4, 1, 5), (0, 4), (8,)):
            tensor = testing.values(3, shape, dtype)
            mine = tensor if rank == 0 else torch.zeros_like(tensor)
            places = [Replicate()] + [Shard(d) for d in range(len(shape))]
            for place in places:
                made = distribute_tensor(mine, mesh, [place])
                check_local(made, tensor, place, rank, size)
                testing.check_equal(made.full_tensor(), tensor,
                                    (dtype, shape, place))
    # Whatever holds a source says so: no other rank's data counts.
    made = distribute_tensor(testing.values(rank, (5, 4)), mesh, [Shard(0)],
                             src_data_rank=2)
    testing.check_equal(made.full_tensor(), testing.values(2, (5, 4)), "of 2")


def redistributes(rank, size):
    """From every placement to every other, on a line of ranks."""
    mesh = init_device_mesh("cpu", (size,))
    whole = testing.values(9, (7, 6))
    targets = [Replicate(), Shard(0), Shard(1), Shard(-1)]
    for source, target in itertools.product(targets, targets):
        made = distribute_tensor(whole, mesh, [source])
        for asynchronous in (False, True):
            moved = made.redistribute(placements=[target],
                                      async_op=asynchronous)
            check_local(moved, whole, target, rank, size)
            testing.check_equal(moved.full_tensor(), whole, (source, target))
    parts = [testing.values(r, (7, 6)) for r in range(size)]
    for reduction in _REDUCTIONS:
        wanted = folded(parts, reduction).float()
        for target in targets:
            made = DTensor.from_local(parts[rank], mesh, [Partial(reduction)])
            moved = made.redistribute(placements=[target])
            check_local(moved, wanted, target, rank, size)
            testing.check_equal(moved.full_tensor(), wanted,
                                (reduction, target))


def redistributes_in_two(rank, size):
    """The same on a 2-D mesh, where 5 rows are uneven twice."""
    mesh = init_device_mesh("cpu", (2, size // 2))
    whole = testing.values(4, (5, 7))
    places = [Replicate(), Shard(0), Shard(1)]
    pairs = list(itertools.product(places, places))
    for source, target in itertools.product(pairs, pairs):
        made = distribute_tensor(whole, mesh, source)
        testing.check_equal(made.full_tensor(), whole, source)
        moved = made.redistribute(placements=target)
        testing.check_equal(moved.full_tensor(), whole, (source, target))
    parts = [testing.values(r, (5, 7)) for r in range(size)]
    for reduction in _REDUCTIONS:
        made = DTensor.from_local(parts[rank], mesh, [Partial(reduction)] * 2)
        testing.check_equal(made.full_tensor(), folded(parts, reduction),
                            reduction)
        rows = [folded(parts[i:i + 2], reduction) for i in (0, 2)]
        made = DTensor.from_local(parts[rank], mesh,
                                  [Shard(0), Partial(reduction)])
        testing.check_equal(made.full_tensor(), torch.cat(rows), reduction)


def moves_shards(rank, size):
    """The all-to-all that accelerators move shards by."""
    group = dist.group.WORLD
    for shape in ((8, 12, 3), (4, 8)):
        whole = testing.values(1, shape)
        mine = whole.chunk(size, 0)[rank].contiguous()
        found = torch.ops._dtensor.shard_dim_alltoall(
            mine, 0, 1, group.group_name)
        testing.check_equal(found, whole.chunk(size, 1)[rank], shape)


def computes(rank, size):
    mesh = init_device_mesh("cpu", (size,))
    left, right = testing.values(0, (7, 6)) / 64, testing.values(1, (6, 5)) / 64
    for one, other in itertools.product((Replicate(), Shard(0), Shard(1)),
                                        repeat=2):
        a = distribute_tensor(left.double(), mesh, [one]).requires_grad_()
        b = distribute_tensor(right.double(), mesh, [other])
        product = a @ b
        torch.testing.assert_close(product.full_tensor(),
                                   left.double() @ right.double())
        product.sum().backward()
        wanted = torch.ones(7, 5).double() @ right.double().t()
        torch.testing.assert_close(a.grad.full_tensor(), wanted)
    # A mask's any() gathers or reduces bools.
    numbers = distribute_tensor(left, mesh, [Shard(0)])
    for limit in (left.max() + 1, left.max()):
        mask = numbers >= limit
        assert bool(mask.any().full_tensor()) == bool((left >= limit).any())
        assert bool(mask.all().full_tensor()) == bool((left >= limit).all())
        testing.check_equal(mask.full_tensor(), left >= limit, "mask")
    for name in ("sum", "mean", "amax", "amin"):
        for dims in ((0,), (1,), (0, 1)):
            found = getattr(numbers, name)(dim=dims).full_tensor()
            torch.testing.assert_close(found, getattr(left, name)(dim=dims))
    torch.testing.assert_close(numbers.softmax(0).full_tensor(),
                               left.softmax(0))
    torch.testing.assert_close(
        torch.linalg.vector_norm(numbers).full_tensor(),
        torch.linalg.vector_norm(left))


def makes(rank, size):
    mesh = init_device_mesh("cpu", (2, size // 2))
    places = [Shard(0), Replicate()]
    made = dtensor.ones(5, 4, device_mesh=mesh, placements=places)
    testing.check_equal(made.full_tensor(), torch.ones(5, 4), "ones")
    module = distribute_module(torch.nn.Linear(4, 3), mesh)
    found = module(distribute_tensor(torch.ones(2, 4), mesh)).full_tensor()
    torch.testing.assert_close(
        found, torch.nn.functional.linear(torch.ones(2, 4),
                                          module.weight.full_tensor(),
                                          module.bias.full_tensor()))
    # Rank 0's module counts.
    every = [None] * size
    dist.all_gather_object(every, module.weight.to_local().tolist())
    assert every == every[:1] * size, every


class Tensors(testing.RanksTest):

    def test_are_what_one_process_has(self):
        self.check(distributes, redistributes, redistributes_in_two,
                   moves_shards, computes, makes, sizes=(4,))


if __name__ == "__main__":
    testing.main()
