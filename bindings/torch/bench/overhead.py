# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""What a small blocking call costs above torch.distributed itself.

The same call on a backend that does nothing (PyTorch's own, in C++) tells what
the way from Python to a backend takes. What's left is the binding and the C
call; the C call alone is what `all_reduce_perf -b 8 -e 8` of bindings/mpi shows
on the same machine.
"""

import dataclasses
import functools
import statistics

import torch
import torch.distributed as dist
from figures import Spread
from ranks import NOTHING, OURS, Ranks
from stopwatch import Stopwatch, Timed, take_turns

BYTES = 8

# Many short blocks: where other work disturbs some, the rest still tell.
_BLOCK_S = 0.002
_BLOCKS = 40  # a round


@dataclasses.dataclass(frozen=True)
class Overhead:
    """Microseconds of a call."""
    time_us: Spread
    nothing_us: Spread
    # Between the first quartiles of both.
    above_us: float

    def __str__(self) -> str:
        return "\n".join((
            "blocking all_reduce of %d B, us: median (range)" % BYTES,
            "  this backend              %s" % self.time_us,
            "  a backend doing nothing   %s" % self.nothing_us,
            "  between their quartiles   %.2f: the binding and the C call, of "
            "which" % self.above_us,
            "  all_reduce_perf -b %d -e %d (bindings/mpi) shows the latter" % (
                BYTES, BYTES)))


def measure(ranks: Ranks, rounds: int) -> Overhead:
    tensor = torch.zeros(BYTES // torch.float32.itemsize)
    ours, nothing = watches = [
        Stopwatch(ranks, Timed(functools.partial(
            dist.all_reduce, tensor, group=ranks.group(backend))), _BLOCK_S)
        for backend in (OURS, NOTHING)]
    take_turns(watches, rounds * _BLOCKS)
    quartiles = [statistics.quantiles(watch.seconds)[0] for watch in watches]
    return Overhead(ours.time_us(), nothing.time_us(),
                    (quartiles[0] - quartiles[1]) * 1e6)
