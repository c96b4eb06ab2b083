#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""PyTorch's own checks and profiles of the backend's calls."""

import testing  # First: it finds Python and the package.


import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from operations import LAYOUTS, OPERATIONS, Case

_CPU = torch.device("cpu")


def debug(level, rank, size, name="neuron"):
    """The default group made anew under TORCH_DISTRIBUTED_DEBUG's level."""
    store = c10d._get_default_store()
    dist.set_debug_level(level)
    dist.destroy_process_group()
    dist.init_process_group(name, store=store, rank=rank, world_size=size,
                            timeout=testing.TIMEOUT)
    return dist.group.WORLD._get_backend(_CPU)


def every_operation(rank, members, group):
    for number, (layout, operation) in enumerate(
            (layout, operation) for layout in LAYOUTS[:3]
            for operation in OPERATIONS.values()):
        operation(Case(rank, members, group=group, layout=layout,
                       shape=(len(members) * 2, 3), number=number,
                       asynchronous=number % 2 == 1,
                       root=number % len(members)))


def training(rank, size):
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Linear(3, 2))
    plain = torch.nn.Linear(3, 2)
    plain.load_state_dict(model.module.state_dict())
    torch.manual_seed(4)
    rows = torch.randn(size, 4, 3)
    model(rows[rank]).pow(2).mean().backward()
    plain(rows.flatten(0, 1)).pow(2).mean().backward()
    torch.testing.assert_close(model.module.weight.grad, plain.weight.grad)


def detail(rank, size):
    backend = debug(dist.DebugLevel.DETAIL, rank, size)
    assert type(backend).__name__ == "_ProcessGroupWrapper", type(backend)
    assert backend.name() == "neuron"
    every_operation(rank, tuple(range(size)), dist.group.WORLD)
    pair = dist.new_group([0, 2])
    if rank in (0, 2):
        every_operation(rank // 2, (0, 2), pair)
    for work in dist.batch_isend_irecv([
            dist.P2POp(dist.isend, torch.ones(2), (rank + 1) % size),
            dist.P2POp(dist.irecv, torch.empty(2), (rank - 1) % size)]):
        work.wait()
    with dist._coalescing_manager():
        for tensor in (torch.ones(3), torch.ones(4)):
            dist.all_reduce(tensor)
    found = [None] * size
    dist.all_gather_object(found, rank)
    assert found == list(range(size))
    dist.barrier()
    dist.group.WORLD.monitored_barrier(testing.TIMEOUT)
    training(rank, size)
    debug(dist.DebugLevel.DETAIL, rank, size, "cpu:neuron")
    every_operation(rank, tuple(range(size)), dist.group.WORLD)


def detail_of_mistakes(rank, size):
    """The wrapper tells what ranks disagree about, and the group goes on."""
    debug(dist.DebugLevel.DETAIL, rank, size)
    odd = rank == 1
    for call in (
            lambda: dist.all_reduce(torch.ones(3 if odd else 4)),
            lambda: dist.all_reduce(torch.ones(
                3, dtype=torch.int32 if odd else torch.float32)),
            lambda: dist.barrier() if odd else dist.all_reduce(torch.ones(3)),
            lambda: dist.all_gather_into_tensor(
                torch.empty(3 * size), torch.ones(3)) if odd else
            dist.reduce_scatter_tensor(torch.empty(3), torch.ones(3 * size))):
        testing.check_refused(RuntimeError, call, "mismatch", "anks")
        tensor = testing.values(rank, (5,))
        dist.all_reduce(tensor)
        testing.check_equal(tensor, testing.total(size, (5,)), "afterwards")


def info(rank, size):
    debug(dist.DebugLevel.INFO, rank, size)
    every_operation(rank, tuple(range(size)), dist.group.WORLD)
    training(rank, size)


def profiled(rank, size):
    """Each call is an event of its name, with its sizes, as long as it took."""
    late = torch.empty(7)
    with profile(activities=[ProfilerActivity.CPU],
                 record_shapes=True) as profiler:
        dist.all_reduce(torch.ones(3, 4))
        dist.all_gather_into_tensor(torch.empty(size * 5), torch.ones(5))
        dist.reduce_scatter_tensor(torch.empty(6), torch.ones(size * 6))
        dist.broadcast(torch.ones(2, 2), 0)
        dist.all_to_all_single(torch.empty(size), torch.ones(size))
        dist.barrier()
        work = dist.all_reduce(torch.ones(1 << 16), async_op=True)
        work.wait()
        sends = dist.isend(torch.ones(7), (rank + 1) % size)
        dist.recv(late, (rank - 1) % size)
        sends.wait()
        functional = torch.ops._c10d_functional.all_reduce(
            torch.ones(9), "sum", dist.group.WORLD.group_name)
        torch.ops._c10d_functional.wait_tensor(functional)
    events = [e for e in profiler.events() if e.name.startswith("neuron:")]
    for event in events:
        assert event.time_range.elapsed_us() > 0, event
    found = [(e.name, [list(s) for s in e.input_shapes]) for e in events]
    for name, shapes in (
            ("all_reduce", [[3, 4]]), ("all_gather_into_tensor", [[5]]),
            ("reduce_scatter_tensor", [[size * 6]]), ("broadcast", [[2, 2]]),
            ("all_to_all", [[size]]), ("all_reduce", [[1 << 16]]),
            ("all_reduce", [[9]])):
        assert found.count((f"neuron:{name}", shapes)) == 1, (name, found)
    names = [e.name for e in events]
    assert "neuron:barrier" in names, names
    assert any(name.startswith("neuron:send") for name in names), names
    assert any(name.startswith("neuron:recv") for name in names), names


class Debug(testing.RanksTest):

    def test_pytorch_checks_and_profiles_calls(self):
        self.check(profiled, detail, detail_of_mistakes, info, sizes=(3,))


if __name__ == "__main__":
    testing.main()
