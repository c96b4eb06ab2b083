#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""What groups cost a process: threads, descriptors, files and memory."""

import ctypes
import dataclasses
import gc
import os
import resource
import tempfile
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # NumPy's threads aren't ours.
import testing  # noqa: E402 (it turns to the Python of .venv)
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

# What a process may need whatever the number of groups: doorbell, polls.
_COMMON_DESCRIPTORS = 16
_DESCRIPTORS_PER_GROUP = 3
# Over 200 groups, or 50 default ones: PyTorch keeps some of each one's name.
_GROWTH_KIB = 1 << 10
# Until others know of a trouble; the timeout is far above.
_SOON_S = 2.5
_LARGE = 1 << 18  # elements: beyond what goes as one message


@dataclasses.dataclass(frozen=True)
class Usage:
    """Of this process; `shared_files` of any."""
    threads: int
    descriptors: int
    shared_files: int
    mappings: int
    heap_kib: int    # what malloc has given out
    shared_kib: int  # resident
    private_kib: int


class _HeapInfo(ctypes.Structure):
    """mallinfo2's."""
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks",
        "fsmblks", "uordblks", "fordblks", "keepcost")]


def usage():
    gc.collect()
    with open("/proc/self/status", encoding="ascii") as file:
        kib = {words[0]: int(words[1]) for words in map(str.split, file)
               if words[0].startswith("Rss")}
    with open("/proc/self/maps", encoding="utf-8") as file:
        mappings = sum(1 for _ in file)
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _HeapInfo
    heap = libc.mallinfo2()
    return Usage(len(os.listdir("/proc/self/task")),
                 len(os.listdir("/proc/self/fd")),
                 sum("trnccl" in name for name in os.listdir("/dev/shm")),
                 mappings, (heap.uordblks + heap.hblkhd) >> 10,
                 kib["RssShmem:"], kib["RssAnon:"])


class Buffers:
    """Made once: what an allocator does with them isn't the question."""

    def __init__(self, size):
        self.part = torch.empty(_LARGE)
        self.whole = torch.empty(size * _LARGE)


def use(rank, size, group, buffers):
    """Calls of every way that data takes, each of which may keep something."""
    for elements in (2, _LARGE):
        part = buffers.part[:elements].fill_(rank + 1)
        whole = buffers.whole[:size * elements]
        dist.all_reduce(part, group=group)
        dist.all_reduce(part, group=group, async_op=True).wait()
        assert part[-1] == size * size * (size + 1) / 2, part
        part.fill_(rank)
        dist.all_gather_into_tensor(whole, part, group=group)
        assert whole[-1] == size - 1, whole
        sent = dist.isend(part, (rank + 1) % size, group=group)
        dist.recv(whole[:elements], (rank - 1) % size, group=group)
        sent.wait()
    dist.barrier(group=group)


def many_live_groups(rank, size):
    before = usage()
    groups = [dist.new_group() for _ in range(100)]
    buffers = Buffers(size)
    for group in groups:
        use(rank, size, group, buffers)
    # All at work at once, too.
    tensors = [torch.full((_LARGE,), 1.0) for _ in groups]
    works = [dist.all_reduce(tensor, group=group, async_op=True)
             for tensor, group in zip(tensors, groups)]
    during = usage()
    for work, tensor in zip(works, tensors):
        work.wait()
        assert tensor[-1] == size
    # The main thread, and one that drives asynchronous calls.
    assert during.threads <= 2, during
    taken = during.descriptors - before.descriptors
    assert taken <= _DESCRIPTORS_PER_GROUP * len(groups), (before, during)
    for group in groups:
        dist.destroy_process_group(group)


def cycle(rank, size, times, buffers):
    for _ in range(times):
        group = dist.new_group()
        use(rank, size, group, buffers)
        dist.destroy_process_group(group)


def check_nothing_left(before, after):
    for name, most in (("threads", 0), ("shared_files", 0), ("shared_kib", 0),
                       # Each thread has one once it has slept.
                       ("descriptors", before.threads),
                       ("heap_kib", _GROWTH_KIB),
                       # malloc's own doings: it can't give back all that it's
                       # given back.
                       ("mappings", 16), ("private_kib", 32 << 10)):
        grown = getattr(after, name) - getattr(before, name)
        assert grown <= most, (name, before, after)


def groups_come_and_go(rank, size):
    buffers = Buffers(size)
    cycle(rank, size, 20, buffers)
    before = usage()
    cycle(rank, size, 200, buffers)
    check_nothing_left(before, usage())


def default_group_comes_and_goes(rank, size):
    buffers = Buffers(size)
    with tempfile.TemporaryDirectory() as mine:
        folder = [mine]
        dist.broadcast_object_list(folder)  # Rank 0's.
        begin_again(rank, size, folder[0], buffers)
        dist.barrier()


def begin_again(rank, size, folder, buffers):
    def again(number):
        dist.destroy_process_group()
        store = dist.FileStore(os.path.join(folder, str(number)), size)
        dist.init_process_group("neuron", store=store, rank=rank,
                                world_size=size, timeout=testing.TIMEOUT)
        use(rank, size, dist.group.WORLD, buffers)

    for number in range(10):
        again(number)
    before = usage()
    for number in range(10, 60):
        again(number)
    check_nothing_left(before, usage())


def few_descriptors_allowed(rank, size):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, most))
    groups = [dist.new_group() for _ in range(300)]
    tensor = torch.empty(_LARGE)
    for group in groups:
        dist.all_reduce(tensor.fill_(rank), group=group)
        assert tensor[-1] == size * (size - 1) / 2
    in_use = usage().descriptors
    assert in_use <= _DESCRIPTORS_PER_GROUP * 300 + _COMMON_DESCRIPTORS, in_use
    for group in groups:
        dist.destroy_process_group(group)


def make_group_with_spare(descriptors):
    """How it failed, or "", with so many descriptors more than are in use."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors is not None:
        in_use = 1 + max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE,
                           (in_use + descriptors, before[1]))
    try:
        dist.destroy_process_group(dist.new_group())
    except dist.DistBackendError as error:
        return str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    return ""


def a_rank_lacks_descriptors(rank, size):
    # The test's own store, a file, needs one itself.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True,
                          wait_for_workers=False) if rank == 0 else None
    port = [store.port if rank == 0 else None]
    dist.broadcast_object_list(port)
    if rank > 0:
        store = dist.TCPStore("127.0.0.1", port[0], is_master=False)
    dist.destroy_process_group()
    dist.init_process_group("neuron", store=store, rank=rank, world_size=size,
                            timeout=testing.TIMEOUT)
    # Else NumPy, say, opens its files when it's first used.
    make_group_with_spare(None)
    for struck in range(size):
        failed = 0
        for spare in range(16):
            start_s = time.monotonic()
            failure = make_group_with_spare(spare if rank == struck else None)
            took_s = time.monotonic() - start_s
            failures = [None] * size
            dist.all_gather_object(failures, failure)
            if not any(failures):
                continue
            failed += 1
            assert all("origin: rank %d (host" % struck in each
                       for each in failures), (spare, failures)
            assert took_s < _SOON_S, (spare, took_s, failures)
        assert 0 < failed < 16, failed


def steps_take_blocks_of_several_sizes(rank, size):
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    # As FSDP2's step does: some at once, then others.
    at_once = ((700_000, 700_000, 90_000), (700_000, 350_000), (45_000,))

    def step():
        for counts in at_once:
            tensors = [backend.allocate_tensor(
                count, dtype=torch.float32, device=torch.device("cpu"))
                for count in counts]
            for tensor in tensors:
                dist.all_reduce(tensor.fill_(rank))
                assert tensor[-1] == size * (size - 1) / 2
            del tensor, tensors

    step()
    # Every block is there for the next step.
    kept = backend.memory_stats()["kept_bytes"]
    different = 700_000 + 700_000 + 90_000 + 350_000 + 45_000
    assert kept >= torch.float32.itemsize * different, kept
    step()
    assert backend.memory_stats()["kept_bytes"] == kept


class Resources(testing.RanksTest):

    def test_100_live_groups_take_one_thread_and_few_descriptors(self):
        self.check(many_live_groups, sizes=(2, 4))

    def test_300_groups_live_within_1024_descriptors(self):
        self.check(few_descriptors_allowed, sizes=(4,))

    def test_all_ranks_hear_at_once_of_one_that_lacks_descriptors(self):
        self.check(a_rank_lacks_descriptors, sizes=(3,))

    def test_groups_that_end_leave_nothing(self):
        self.check(groups_come_and_go)

    def test_the_default_group_leaves_nothing_when_it_ends(self):
        self.check(default_group_comes_and_goes)

    def test_steps_of_training_find_the_shared_memory_that_they_gave_back(
            self):
        self.check(steps_take_blocks_of_several_sizes)


if __name__ == "__main__":
    testing.main()
