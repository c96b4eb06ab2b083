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


# Segments that three messages of each call take, one a round of log2 8, where a
# segment holds 1.4 KB: parts of 512, 1024 and 2048 bytes, or thrice the whole.
_SEGMENTS_OF_8 = {"all_gather": 4, "reduce_scatter": 4, "all_reduce": 9}


def messages_of_8_ranks(rank, size):
    """Short calls take a message a round; tells the times too."""
    assert size == 8
    for name, call in _calls(size).items():
        for _ in range(5):
            call()
        dist.barrier()
        before, times = _messages_sent(), []
        for _ in range(_TIMES):
            start = time.monotonic()
            call()
            times.append((time.monotonic() - start) * 1e3)
        sent = (_messages_sent() - before) / _TIMES
        if rank == 0:
            print(f"{name} of {_BYTES} bytes on {size} ranks: mean "
                  f"{sum(times) / _TIMES:.1f} ms, best {min(times):.1f}; "
                  f"{sent:.1f} segments sent", flush=True)
        # The watch between ranks says a word now and then.
        assert sent < _SEGMENTS_OF_8[name] + 0.5, (name, rank, sent)
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
