# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Bodies of tests: what calls cost on a slow network, by this node's counters.

With one rank a node, a node's messages are its rank's.
"""

import time

import torch
import torch.distributed as dist

_BYTES = 4096
_TIMES = 40


def _messages_sent():
    """Segments of TCP that carried data, of this node; retransmissions apart.

    Between these nodes a short message is one segment.
    """
    with open("/proc/net/netstat", encoding="ascii") as file:
        lines = [line.split() for line in file]
    for names, values in zip(lines[::2], lines[1::2]):
        if "TCPOrigDataSent" in names:
            return int(values[names.index("TCPOrigDataSent")])
    raise AssertionError("the kernel doesn't count TCPOrigDataSent")


def _calls(size):
    whole = torch.ones(_BYTES // 4)
    part = torch.ones(_BYTES // 4 // size)
    return {"all_gather": lambda: dist.all_gather_into_tensor(whole, part),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
            "all_reduce": lambda: dist.all_reduce(whole)}


def messages_and_times(rank, size):
    """Tells of each call; judges nothing."""
    for name, call in _calls(size).items():
        for _ in range(5):
            call()
        dist.barrier()
        before, times = _messages_sent(), []
        for _ in range(_TIMES):
            start = time.monotonic()
            call()
            times.append(time.monotonic() - start)
        sent = (_messages_sent() - before) / _TIMES
        times.sort()
        if rank == 0:
            print(f"{name} of {_BYTES} bytes on {size} ranks: "
                  f"{times[_TIMES // 2] * 1e3:.1f} ms (best "
                  f"{times[0] * 1e3:.1f}), {sent:.1f} messages sent",
                  flush=True)
        dist.barrier()


def waiting_costs_no_processor(rank, size):
    """While 100 KB crawl."""
    tensor = torch.ones(25_000)
    dist.all_reduce(tensor)
    dist.barrier()
    wall, used = time.monotonic(), time.process_time()
    dist.all_reduce(tensor)
    wall, used = time.monotonic() - wall, time.process_time() - used
    print(f"rank {rank} of {size}: {used / wall:.1%} of a core for "
          f"{wall:.2f} s", flush=True)
    assert wall > 0.3, wall
    assert used / wall < 0.2, (used, wall)
