#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Groups as torch.distributed makes, names, splits and times them."""

import datetime
import os
import subprocess
import sys
import tempfile
import threading
import warnings

import testing
import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
import torch.multiprocessing as mp
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from trnccl import _backend

_CPU = torch.device("cpu")
# This file, as a program that torchrun starts.
_TORCHRUN = "--under-torchrun"


def backend_of(group=None):
    return (group or dist.group.WORLD)._get_backend(_CPU)


def seconds(number):
    return datetime.timedelta(seconds=number)


def check_sum(group, ranks, what):
    """An all-reduce over the group's members gives the sum of theirs."""
    tensor = testing.values(dist.get_rank(), (5, 3))
    dist.all_reduce(tensor, group=group)
    testing.check_equal(tensor, testing.total(ranks, (5, 3)), what)


def of_members(rank, size):
    """Only members make them: their names count the groups of a rank."""
    del size
    pair = [0, 3] if rank in (0, 3) else [1, 2]
    group = dist.new_group(pair, use_local_synchronization=True)
    check_sum(group, pair, "made by its members")
    alone = dist.new_group([rank], use_local_synchronization=True)
    check_sum(alone, [rank], "a group of one")
    dist.barrier(group=alone)


def meshes(rank, size):
    line = init_device_mesh("cpu", (size,))
    check_sum(line.get_group(), size, "the whole world")
    mesh = init_device_mesh("cpu", (2, size // 2),
                            mesh_dim_names=("rows", "columns"))
    row = [r for r in range(size) if r // 2 == rank // 2]
    column = [r for r in range(size) if r % 2 == rank % 2]
    assert mesh["columns"].mesh.tolist() == row
    check_sum(mesh.get_group("columns"), row, "a row")
    check_sum(mesh["rows"].get_group(), column, "a column")
    check_sum(mesh["rows", "columns"]._flatten("all").get_group(), size,
              "flattened")
    assert mesh.get_local_rank("rows") == rank // 2
    assert [g.size() for g in mesh.get_all_groups()] == [2, 2]
    turned = DeviceMesh("cpu", [[3, 1], [2, 0]])
    mine = next(line for line in turned.mesh.tolist() if rank in line)
    check_sum(turned.get_group(1), mine, "a mesh of ranks out of order")
    again = DeviceMesh.from_group(mesh.get_group("rows"), "cpu")
    check_sum(again.get_group(), column, "a mesh of a group")
    mixed = init_device_mesh("cpu", (2, size // 2),
                             mesh_dim_names=("rows", "columns"),
                             backend_override={"rows": "gloo"})
    assert dist.get_backend(mixed.get_group("rows")) == "gloo"
    assert dist.get_backend(mixed.get_group("columns")) == "neuron"
    check_sum(mixed.get_group("rows"), column, "by Gloo")
    check_sum(mixed.get_group("columns"), row, "beside Gloo")
    # A mesh of some ranks only.
    few = DeviceMesh("cpu", [1, 3])
    if rank in (1, 3):
        check_sum(few.get_group(), [1, 3], "a part of the world")


def unsorted(rank, size):
    del size
    group = dist.new_group([3, 1], sort_ranks=False)
    if rank not in (1, 3):
        return
    assert dist.get_rank(group) == (0 if rank == 3 else 1)
    assert dist.get_process_group_ranks(group) == [3, 1]
    mine = testing.values(rank, (4,))
    wanted = torch.cat([testing.values(3, (4,)), testing.values(1, (4,))])
    found = torch.empty(8)
    dist.all_gather_into_tensor(found, mine, group=group)
    testing.check_equal(found, wanted, "in the order given")
    dist.broadcast(mine, src=3, group=group)
    testing.check_equal(mine, wanted[:4], "rank 3's")
    part = torch.empty(2)
    dist.scatter(part, list(wanted[4:].split(2)) if rank == 1 else None,
                 group_src=1, group=group)
    wanted = wanted[4:6] if rank == 3 else wanted[6:]
    testing.check_equal(part, wanted, "from the group's rank 1")
    dist.destroy_process_group(group)


def subgroups(rank, size):
    mine, every = dist.new_subgroups(2)
    assert len(every) == size // 2
    pair = [rank // 2 * 2, rank // 2 * 2 + 1]
    check_sum(mine, pair, "subgroups")
    mine, _ = dist.new_subgroups_by_enumeration([[0, 3], [1, 2]])
    pair = [0, 3] if rank in (0, 3) else [1, 2]
    check_sum(mine, pair, "enumerated")


def split(rank, size):
    world = dist.group.WORLD
    assert backend_of().supports_splitting
    pair = [rank // 2 * 2, rank // 2 * 2 + 1]
    half = world.split_group(pair, timeout=seconds(50),
                             group_name=f"half{pair}",
                             group_desc="a half of the world")
    assert half.size() == 2 and half.rank() == rank % 2
    assert half.group_desc == "a half of the world"
    assert backend_of(half).options._timeout == seconds(50)
    tensor = testing.values(rank, (5,))
    half.allreduce([tensor]).wait()
    testing.check_equal(tensor, testing.total(pair, (5,)), "split")
    assert backend_of(half).options.global_ranks_in_group == pair
    # The parent's options are its own.
    options = backend_of().options
    assert options._timeout == testing.TIMEOUT, options._timeout
    assert options.group_name == world.group_name, options.group_name
    half.shutdown()


def merge(rank, size):
    """The halves of a world that was split find each other by a store."""
    world = dist.group.WORLD
    pair = [rank // 2 * 2, rank // 2 * 2 + 1]
    half = world.split_group(pair, group_name=f"part{pair}")
    store = dist.PrefixStore("merged", world.get_group_store())
    whole = half.merge_remote_group(store, size, seconds(40),
                                    group_name="merged")
    assert whole.size() == size
    rank_now = torch.tensor([whole.rank()])
    found = [torch.empty(1, dtype=torch.int64) for _ in range(size)]
    whole.allgather([found], [rank_now]).wait()
    assert [int(f) for f in found] == list(range(size)), found
    total = testing.values(rank, (5,))
    whole.allreduce([total]).wait()
    testing.check_equal(total, testing.total(size, (5,)), "merged")
    whole.shutdown()
    half.shutdown()


def shrink(rank, size):
    """By the public call, in a group beside the world."""
    group = dist.new_group(list(range(size)))
    assert backend_of(group).supports_shrinking
    if rank != 2:
        small = dist.shrink_group([2], group=group)
        left = [r for r in range(size) if r != 2]
        assert small.size() == size - 1
        check_sum(small, left, "the survivors")
        assert dist.get_process_group_ranks(small) == left
    dist.barrier()


def shrink_the_world(rank, size):
    """The survivors' group becomes the default."""
    dist.new_group()  # which ends with the world
    if rank != 1:
        dist.shrink_group([1])
        assert dist.get_world_size() == size - 1
        assert dist.get_process_group_ranks(None) == [0, 2, 3]
        tensor = testing.values(rank, (5,))
        dist.all_reduce(tensor)
        testing.check_equal(tensor, testing.total([0, 2, 3], (5,)), "shrunken")


def names(rank, size):
    assert dist.get_backend() == "neuron"
    assert backend_of().name() == "neuron"
    for name in ("trnccl", "cpu:trnccl", "cpu:neuron", "cpu:neuron,cuda:gloo"):
        group = dist.new_group(backend=name)
        assert group.name() == "custom", group.name()
        group._register_on_completion_hook(lambda info: None)
        check_sum(group, size, name)
        dist.barrier(group=group)
        objects = [None] * size
        dist.all_gather_object(objects, rank, group=group)
        assert objects == list(range(size)), name
        dist.destroy_process_group(group)
    # Beside Gloo, whose groups are as if this package weren't there.
    for name in ("gloo", "cpu:gloo", "cpu:gloo,cuda:gloo"):
        gloo = dist.new_group(backend=name)
        assert gloo.name() == "gloo", gloo.name()
        gloo._set_sequence_number_for_group()
        for _ in range(3):
            check_sum(gloo, size, "Gloo's")
            check_sum(None, size, "ours")
        dist.destroy_process_group(gloo)


def numbers(rank, size):
    backend = backend_of()
    before = backend_of()._get_sequence_number_for_group()
    check_sum(None, size, "one")
    dist.barrier()
    after = backend._get_sequence_number_for_group()
    assert after == before + 2, (before, after)
    every = [None] * size
    dist.all_gather_object(every, after)
    assert every == [after] * size, every
    group = dist.new_group(group_desc="mine", timeout=seconds(33))
    options = backend_of(group).options
    assert options.group_name == group.group_name
    assert options._timeout == seconds(33), options._timeout
    work = dist.all_reduce(testing.values(rank, (3,)), async_op=True)
    work.wait()
    assert work.is_success()


def patience(rank, size):
    """Each way to set a timeout, on a receive that nobody sends for."""
    group = dist.new_group(timeout=seconds(40))

    def stuck(call):
        text = testing.check_refused(RuntimeError, call)
        assert "rank" in text, text

    backend = backend_of(group)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        c10d._set_pg_timeout(seconds(0.5), group)
    group.set_timeout(seconds(0.4))
    assert backend.options._timeout == seconds(0.4), backend.options._timeout
    if rank == 0:
        stuck(lambda: dist.recv(torch.empty(2), 1, group=group))
    dist.barrier()
    # The world is none the worse for it.
    check_sum(None, size, "after a timeout elsewhere")
    group = dist.new_group(timeout=seconds(40))
    backend_of(group).set_timeout(seconds(0.4))
    if rank == 1:
        stuck(lambda: dist.recv(torch.empty(2), 0, group=group))
    dist.barrier()


def monitored(rank, size):
    dist.monitored_barrier(timeout=seconds(30), wait_all_ranks=True)
    late = rank in (1, 2)
    if late:
        dist.barrier()
    testing.check_refused(
        RuntimeError,
        lambda: dist.monitored_barrier(timeout=seconds(0.5),
                                       wait_all_ranks=True),
        "Ranks 1, 2 failed", "in 500 ms", "rank 1 (host ", "in barrier #")
    if not late:
        dist.barrier()
    dist.monitored_barrier()
    pair = dist.new_group([0, 3])
    if rank in (0, 3):
        dist.monitored_barrier(pair, seconds(30))
    dist.barrier(device_ids=[0])
    dist.barrier(timeout=seconds(30))
    work = dist.barrier(async_op=True)
    work.wait(seconds(30))
    check_sum(None, size, "after barriers")


def objects(rank, size):
    mine = {"rank": rank, "text": "x" * (rank * 1000 + 1)}
    every = [{"rank": r, "text": "x" * (r * 1000 + 1)} for r in range(size)]
    found = [None] * size
    dist.all_gather_object(found, mine)
    assert found == every
    found = [None] * size if rank == 1 else None
    dist.gather_object(mine, found, dst=1)
    assert rank != 1 or found == every
    found = [mine, None]
    dist.broadcast_object_list(found, src=2)
    assert found[0] == every[2]
    found = [None]
    dist.scatter_object_list(found, every if rank == 3 else None, src=3)
    assert found == [mine]
    following, before = (rank + 1) % size, (rank - 1) % size
    found = [None]
    if rank % 2 == 0:
        dist.send_object_list([mine], following)
        dist.recv_object_list(found, before)
    else:
        dist.recv_object_list(found, before)
        dist.send_object_list([mine], following)
    assert found == [every[before]]


def again(rank, size):
    """The default group, made anew by the same store under other strings."""
    store = c10d._get_default_store()
    for name in ("cpu:neuron", "trnccl", "cpu:neuron,cuda:gloo", "gloo",
                 "neuron"):
        dist.destroy_process_group()
        dist.init_process_group(name, store=store, rank=rank, world_size=size,
                                timeout=testing.TIMEOUT)
        check_sum(None, size, name)
        ours = dist.new_group([0, 2], backend="neuron")
        if rank in (0, 2):
            check_sum(ours, [0, 2], "ours in " + name)
        dist.barrier()
        found = [None] * size
        dist.all_gather_object(found, rank)
        assert found == list(range(size)), name
        mesh = init_device_mesh("cpu", (2, size // 2))
        pair = [rank // 2 * 2, rank // 2 * 2 + 1]
        check_sum(mesh.get_group(1), pair, name)


def _of_thread(store, rank, size, found):
    """A rank that is a thread: groups of c10d's C++ alone."""
    options = c10d._DistributedBackendOptions()
    options.store, options.group_rank, options.group_size = store, rank, size
    options.timeout, options.group_id = testing.TIMEOUT, "threads"
    options.global_ranks_in_group = list(range(size))
    backend = _backend._make("neuron", options, None)
    tensor = testing.values(rank, (1000,))
    backend.allreduce([tensor]).wait()
    backend.barrier().wait()
    found[rank] = tensor


def _by_store(rank, port, file, size):
    """Ranks meet by either kind of store, and by a URL."""
    for meeting in ({"store": dist.TCPStore("127.0.0.1", port)},
                    {"init_method": "file://" + file}):
        dist.init_process_group("neuron", rank=rank, world_size=size,
                                timeout=testing.TIMEOUT, **meeting)
        check_sum(None, size, meeting)
        dist.destroy_process_group()


class Groups(testing.RanksTest):

    def test_are_made_split_and_timed(self):
        self.check(of_members, meshes, unsorted, subgroups, split, merge,
                   shrink, names, numbers, objects, monitored, patience, again,
                   shrink_the_world, sizes=(4,))

    def test_are_for_devices_that_exist(self):
        assert dist.Backend.backend_capability["neuron"] == ["cpu"]
        assert dist.Backend.backend_capability["trnccl"] == ["cpu"]
        devices = dist.Backend.default_device_backend_map
        assert set(devices) == {"cpu", "cuda", "xpu", "mps"}, devices

    def test_meet_by_a_store_of_threads(self):
        store, size, found = dist.HashStore(), 3, {}
        threads = [threading.Thread(target=_of_thread,
                                    args=(store, rank, size, found))
                   for rank in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for rank in range(size):
            wanted = testing.total(size, (1000,))
            testing.check_equal(found[rank], wanted, rank)

    def test_meet_by_stores_of_processes(self):
        with tempfile.TemporaryDirectory() as folder:
            server = dist.TCPStore("127.0.0.1", 0, is_master=True)
            mp.start_processes(_by_store, (server.port, folder + "/file", 2),
                               2, start_method="forkserver")

    def test_meet_under_torchrun(self):
        command = [sys.executable, "-m", "torch.distributed.run",
                   "--standalone", "--nproc-per-node=2", __file__, _TORCHRUN]
        subprocess.run(command, check=True, env={
            **os.environ, "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.path.dirname(os.path.abspath(__file__))})


def under_torchrun():
    dist.init_process_group("neuron")
    check_sum(None, dist.get_world_size(), "torchrun")
    dist.destroy_process_group()


if __name__ == "__main__":
    if _TORCHRUN in sys.argv:
        under_torchrun()
    else:
        testing.main()
