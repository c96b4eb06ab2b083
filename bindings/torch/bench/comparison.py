# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""The calls of torch.distributed, ours and Gloo's in turn: rows of a table."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from collectives import BARRIER, COLLECTIVES, Buffers, Collective, Shape
from figures import Spread
from ranks import GLOO, OURS, Ranks
from stopwatch import Stopwatch, Timed, ratio, take_turns

KIB, MIB = 1 << 10, 1 << 20
SIZES = (8, 64, KIB, 8 * KIB, 32 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB,
         128 * MIB)
NAMES = tuple(each.name for each in COLLECTIVES) + (BARRIER,)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclasses.dataclass(frozen=True)
class Choice:
    """What the command line asks for."""
    names: Sequence[str] = NAMES
    sizes: Sequence[int] = SIZES
    dtypes: Sequence[str] = tuple(DTYPES)
    rounds: int = 5


@dataclasses.dataclass(frozen=True)
class Row:
    """One call of one size and type. Times are those of the slowest rank."""
    operation: str
    bytes: int
    dtype: str  # "none" for a barrier
    ranks: int
    time_us: Spread
    gloo_time_us: Spread
    speedup: Spread  # Gloo's time : ours, pair by pair
    busbw_gbps: float
    gloo_busbw_gbps: float
    calls: int  # of a block
    gloo_calls: int
    wrong: int | None  # elements, over all ranks and both; None: no data

    def json(self) -> dict[str, Any]:
        fields = {}
        for name, value in dataclasses.asdict(self).items():
            if isinstance(value, dict):
                fields[name] = value["median"]
                fields[name + "_min"] = value["min"]
                fields[name + "_max"] = value["max"]
            else:
                fields[name] = value
        return fields


def sweep(ranks: Ranks, choice: Choice) -> Iterator[Row]:
    """Row after row, on all ranks alike."""
    for collective in COLLECTIVES:
        if collective.name not in choice.names:
            continue
        for dtype in choice.dtypes:
            for size in choice.sizes:
                elements = collective.elements(size, ranks.size,
                                               DTYPES[dtype])
                if elements > 0:
                    shape = Shape(ranks.rank, ranks.size, elements,
                                  DTYPES[dtype])
                    yield _measure(ranks, collective, shape, choice.rounds)
    if BARRIER in choice.names:
        yield _measure_barrier(ranks, choice.rounds)


def _measure(ranks: Ranks, collective: Collective, shape: Shape,
             rounds: int) -> Row:
    buffers = Buffers(collective, shape)
    calls = [collective.call(buffers, ranks.group(backend))
             for backend in (OURS, GLOO)]
    wrong = 0
    for call in calls:
        buffers.refill()
        call()
        wrong += collective.wrong(buffers)
    # Sums in place would grow beyond all bounds.
    watches = [Stopwatch(ranks, Timed(call, buffers.refill))
               for call in calls]
    take_turns(watches, rounds)
    return _row(watches, ranks, operation=collective.name, bytes=shape.bytes,
                dtype=str(shape.dtype).removeprefix("torch."),
                wrong=ranks.total(wrong),
                factor=collective.bus_factor(ranks.size))


def _measure_barrier(ranks: Ranks, rounds: int) -> Row:
    watches = [Stopwatch(ranks, Timed(functools.partial(
        dist.barrier, group=ranks.group(backend))))
        for backend in (OURS, GLOO)]
    take_turns(watches, rounds)
    return _row(watches, ranks, operation=BARRIER, bytes=0, dtype="none",
                wrong=None, factor=0)


def _row(watches: Sequence[Stopwatch], ranks: Ranks, *, factor: float,
         **what: Any) -> Row:
    ours, gloo = watches
    times = [watch.time_us() for watch in watches]
    # Bytes a microsecond are MB/s.
    ours_gbps, gloo_gbps = [what["bytes"] * factor / time.median / 1000
                            for time in times]
    return Row(ranks=ranks.size, time_us=times[0], gloo_time_us=times[1],
               speedup=ratio(gloo, ours), busbw_gbps=ours_gbps,
               gloo_busbw_gbps=gloo_gbps, calls=ours.calls,
               gloo_calls=gloo.calls, **what)
