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

import torch
import torch.distributed as dist
from figures import Spread, spread_of
from ranks import NOTHING, OURS, Ranks
from stopwatch import Stopwatch, Timed, take_turns

BYTES = 8


@dataclasses.dataclass(frozen=True)
class Overhead:
    """Microseconds of a call; `above` is the difference, round by round."""
    time_us: Spread
    nothing_us: Spread
    above_us: Spread

    def __str__(self) -> str:
        return "\n".join((
            "blocking all_reduce of %d B, us: median (range)" % BYTES,
            "  this backend              %s" % self.time_us,
            "  a backend doing nothing   %s" % self.nothing_us,
            "  the difference            %s" % self.above_us,
            "The difference is the binding and the C call, of which "
            "all_reduce_perf -b %d -e %d" % (BYTES, BYTES),
            "(bindings/mpi) shows the latter."))


def measure(ranks: Ranks, rounds: int) -> Overhead:
    tensor = torch.zeros(BYTES // torch.float32.itemsize)
    ours, nothing = [
        Stopwatch(ranks, Timed(functools.partial(
            dist.all_reduce, tensor, group=ranks.group(backend))))
        for backend in (OURS, NOTHING)]
    take_turns([ours, nothing], rounds)
    return Overhead(ours.time_us(), nothing.time_us(),
                    spread_of((a - b) * 1e6 for a, b in
                              zip(ours.seconds, nothing.seconds)))
