#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Functional collectives, their gradients, and torch.compile on them."""

import testing  # First: it finds Python and the package.


import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

_FOLDS = {"sum": lambda t: t.sum(0), "avg": lambda t: t.mean(0),
          "max": lambda t: t.amax(0), "min": lambda t: t.amin(0),
          "product": lambda t: t.prod(0)}


def of_all(size, shape):
    return torch.stack([testing.values(r, shape).double() % 8 - 3
                        for r in range(size)])


def plain(rank, size):
    """Each call, by group, by mesh and by ranks; inputs stay as they were."""
    mesh = init_device_mesh("cpu", (size,))
    every = of_all(size, (size * 2, 3))
    before, mine = every[rank].clone(), every[rank]
    for group in (dist.group.WORLD, mesh, list(range(size))):
        for name, fold in _FOLDS.items():
            found = functional.all_reduce(mine, name, group)
            testing.check_equal(found * 1, fold(every), name)
            found = functional.reduce_scatter_single(mine, name, 0, group)
            wanted = fold(every).chunk(size)[rank]
            testing.check_equal(found.wait(), wanted, name)
        for dim in (0, 1):
            found = functional.all_gather_single(mine, dim, group)
            testing.check_equal(found * 1, torch.cat(list(every), dim), dim)
        wide = every.transpose(1, 2).contiguous()
        found = functional.reduce_scatter_single(wide[rank], "sum", 1, group)
        testing.check_equal(found * 1, wide.sum(0).chunk(size, 1)[rank], "dim")
        found = functional.broadcast(mine, 1, group)
        testing.check_equal(found * 1, every[1], "broadcast")
        found = functional.all_to_all_single(mine, None, None, group)
        wanted = torch.cat([t.chunk(size)[rank] for t in every])
        testing.check_equal(found * 1, wanted, "even")
        turned = functional.permute_tensor(
            mine.flatten(), [(r + 1) % size for r in range(size)], group)
        testing.check_equal(turned * 1, every[(rank - 1) % size].flatten(),
                            "turned")
    testing.check_equal(mine, before, "the input")
    # Rank r sends d + 1 rows to rank d.
    rows = [testing.values(10 * rank + d, (d + 1, 2)) for d in range(size)]
    found = functional.all_to_all_single(
        torch.cat(rows), [rank + 1] * size, list(range(1, size + 1)),
        dist.group.WORLD)
    wanted = torch.cat([testing.values(10 * s + rank, (rank + 1, 2))
                        for s in range(size)])
    testing.check_equal(found * 1, wanted, "uneven")


def coalesced(rank, size):
    group = dist.group.WORLD
    shapes = [(size,), (size * 3, 2), (size, 0)]
    mine = [of_all(size, shape)[rank] for shape in shapes]
    every = [of_all(size, shape) for shape in shapes]
    for found, wanted in zip(
            functional.all_reduce_coalesced(mine, "sum", group), every):
        testing.check_equal(found * 1, wanted.sum(0), "all_reduce")
    for found, wanted in zip(
            functional.all_gather_single_coalesced(mine, group), every):
        testing.check_equal(found * 1, torch.cat(list(wanted)), "all_gather")
    for found, wanted in zip(functional.reduce_scatter_single_coalesced(
            mine, "sum", [0] * 3, group), every):
        testing.check_equal(found * 1, wanted.sum(0).chunk(size)[rank],
                            "reduce_scatter")


def in_flight(rank, size):
    """Many at once, waited for in another order, over memory used again."""
    every = of_all(size, (5000,))
    for _ in range(5):
        found = [functional.all_reduce(every[rank] * i, "sum",
                                       dist.group.WORLD) for i in range(1, 9)]
        for i in reversed(range(1, 9)):
            wanted = every.sum(0) * i
            testing.check_equal(functional.wait_tensor(found[i - 1]), wanted, i)
        del found
    # Whoever drops a result has nothing to wait for.
    functional.all_reduce(every[rank], "sum", dist.group.WORLD)
    dist.barrier()


def gradients(rank, size):
    """As if all ranks' losses were one."""
    group = dist.group.WORLD
    torch.manual_seed(3)
    inputs = torch.randn(size, size * 2, 3, dtype=torch.float64)
    weights = torch.randn(size, size * size * 2, 3, dtype=torch.float64)

    def check(call, alone, what):
        mine = inputs[rank].clone().requires_grad_()
        out = call(mine)
        (out * weights[rank][:len(out)]).sum().backward()
        every = inputs.clone().requires_grad_()
        outs = alone(every)
        sum((out * weights[r][:len(out)]).sum()
            for r, out in enumerate(outs)).backward()
        torch.testing.assert_close(mine.grad, every.grad[rank],
                                   msg=lambda text: f"{what}: {text}")

    def scattered(every):
        return every.sum(0).chunk(size)

    def gathered(every):
        return [torch.cat(list(every))] * size

    def exchanged(every):
        return [torch.cat([t.chunk(size)[r] for t in every])
                for r in range(size)]

    check(lambda t: functional.all_gather_single_autograd(t, 0, group),
          gathered, "all_gather")
    check(lambda t: functional.reduce_scatter_single_autograd(
        t, "sum", 0, group), scattered, "reduce_scatter")
    check(lambda t: functional.all_to_all_single_autograd(
        t, None, None, group), exchanged, "all_to_all")
    check(lambda t: differentiable.all_reduce(t),
          lambda every: [every.sum(0)] * size, "nn.all_reduce")
    check(lambda t: torch.cat(differentiable.all_gather(t)), gathered,
          "nn.all_gather")
    check(lambda t: differentiable.all_to_all_single(torch.empty_like(t), t),
          exchanged, "nn.all_to_all_single")
    check(lambda t: differentiable.reduce_scatter(
        torch.empty_like(t[:2]), list(t.chunk(size))), scattered,
        "nn.reduce_scatter")
    check(lambda t: differentiable.broadcast(t, 1),
          lambda every: [every[1]] * size, "nn.broadcast")


def everything(tensor, size):
    """A function of many collectives, for the compiler."""
    group = dist.group.WORLD
    total = functional.all_reduce(tensor * 2, "sum", group)
    part = functional.reduce_scatter_single(total + tensor, "sum", 0, group)
    whole = functional.all_gather_single(part.relu(), 0, group)
    turned = functional.all_to_all_single(whole * tensor, None, None, group)
    return turned.sum(1) + functional.broadcast(tensor, 0, group)[:, 0]


def in_place(tensor, size):
    """The same with calls of torch.distributed."""
    tensor = tensor * 2
    dist.all_reduce(tensor)
    whole = tensor.new_empty(len(tensor) * size, tensor.shape[1])
    dist.all_gather_into_tensor(whole, tensor)
    part = torch.empty_like(tensor)
    dist.reduce_scatter_tensor(part, whole.cos())
    return part.sum(1) + tensor[:, 0]


def compiled(rank, size):
    torch.manual_seed(rank)
    for body in (everything, in_place):
        tensor = torch.randn(size * 2, 3)
        wanted = body(tensor, size)
        for compiler in ("aot_eager", "inductor"):
            torch._dynamo.reset()
            found = torch.compile(body, backend=compiler, fullgraph=True)(
                tensor, size)
            torch.testing.assert_close(found, wanted, msg=compiler)


def compiled_training(rank, size):
    torch._dynamo.reset()
    torch.manual_seed(1)
    layers = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(),
                                 torch.nn.Linear(8, 2)).double()
    rows = torch.randn(size, 4, 6, dtype=torch.float64)
    layers(rows.flatten(0, 1)).pow(2).mean().backward()
    wanted = [p.grad.clone() for p in layers.parameters()]
    layers.zero_grad()
    model = torch.compile(DistributedDataParallel(layers), backend="aot_eager")
    for _ in range(2):
        model.zero_grad()
        model(rows[rank]).pow(2).mean().backward()
    for one, other in zip(layers.parameters(), wanted):
        torch.testing.assert_close(one.grad, other)


class Functional(testing.RanksTest):

    def test_gives_what_one_process_does(self):
        self.check(plain, coalesced, in_flight, gradients, sizes=(3,))

    def test_compiles(self):
        self.check(compiled, compiled_training, sizes=(2,))


if __name__ == "__main__":
    testing.main()
