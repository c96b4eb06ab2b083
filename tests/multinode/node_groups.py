# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Bodies of tests: groups whose members are on several nodes, or on one."""

import os

import testing
import torch
import torch.distributed as dist

import property_test
import resources_test
from operations import OPERATIONS, Case, finish

_PER_NODE = int(os.environ.get("NODES_RANKS_PER_NODE", "1"))
_SEED = int(os.environ.get("PROPERTY_SEED", "20"))
# Beyond what goes as one message, and as one segment.
_LARGE = 150_001
_LIVE_GROUPS = 60
# Of sockets to some peers, and a pipe.
_DESCRIPTORS_PER_GROUP = 4


def _groups(size):
    """The ranks of groups: nodes, one of each node, uneven parts, turned."""
    nodes = [range(first, first + _PER_NODE)
             for first in range(0, size, _PER_NODE)]
    return {tuple(ranks) for ranks in (
        *nodes, *zip(*nodes), range(1, size), range(size - 1),
        reversed(range(size)), (size - 1, 0), (size // 2,))}


def every_operation(rank, size):
    """On each group, small and large; all ranks make all groups."""
    for number, members in enumerate(sorted(_groups(size))):
        group = dist.new_group(list(members), sort_ranks=False)
        if rank not in members:
            continue
        for root in (0, len(members) - 1):
            for operation in OPERATIONS.values():
                for shape in ((3, 5), (_LARGE if root > 0 else 20_000,)):
                    finish(operation(Case(
                        members.index(rank), members, group, shape=shape,
                        root=root, asynchronous=root > 0, number=number % 2)))
        dist.destroy_process_group(group)


def every_type(rank, size):
    for operation in OPERATIONS.values():
        for number, dtype in enumerate(testing.REDUCED):
            finish(operation(Case(rank, tuple(range(size)), dtype=dtype,
                                  shape=(size, 7), number=number,
                                  root=number % size)))


def random_calls(rank, size):
    property_test.random_calls(rank, size, _SEED)


def _sockets():
    """Open ones of this node's processes, without those that only time out."""
    count = 0
    for name in ("tcp", "tcp6"):
        with open(f"/proc/net/{name}", encoding="ascii") as file:
            count += sum(line.split()[3] in ("01", "0A")
                         for line in list(file)[1:])
    return count


def groups_come_and_go(rank, size):
    """With them their threads, descriptors, memory and sockets."""
    buffers = resources_test.Buffers(size)
    resources_test.cycle(rank, size, 5, buffers)
    dist.barrier()
    before, sockets = resources_test.usage(), _sockets()
    dist.barrier()
    resources_test.cycle(rank, size, 20, buffers)
    dist.barrier()
    resources_test.check_nothing_left(before, resources_test.usage())
    assert _sockets() <= sockets, (_sockets(), sockets)
    dist.barrier()


def many_live_groups(rank, size):
    """They share endpoints: each takes few descriptors and no thread."""
    buffers = resources_test.Buffers(size)
    resources_test.use(rank, size, dist.group.WORLD, buffers)
    before = resources_test.usage()
    groups = [dist.new_group() for _ in range(_LIVE_GROUPS)]
    tensors = [torch.full((1 << 18,), 1.0) for _ in groups]
    works = [dist.all_reduce(tensor, group=group, async_op=True)
             for tensor, group in zip(tensors, groups)]
    during = resources_test.usage()
    for work, tensor in zip(works, tensors):
        work.wait()
        assert tensor[-1] == size
    assert during.threads <= before.threads, (before, during)
    taken = during.descriptors - before.descriptors
    assert taken <= _DESCRIPTORS_PER_GROUP * _LIVE_GROUPS, (before, during)
    for group in groups:
        dist.destroy_process_group(group)


def default_group_comes_and_goes(rank, size):
    """50 times, without a port that's taken. The store stays."""
    store = dist.distributed_c10d._get_default_store()
    for number in range(50):
        dist.destroy_process_group()
        dist.init_process_group(
            "neuron", store=dist.PrefixStore(str(number), store), rank=rank,
            world_size=size, timeout=testing.TIMEOUT)
        tensor = testing.values(rank, (5,))
        dist.all_reduce(tensor)
        testing.check_equal(tensor, testing.total(size, (5,)), number)
