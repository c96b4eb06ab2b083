# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""The goals: ours : Open MPI's time, at most, on a machine with 2 cores.

They are the project's own, set for float32 out of place; a goal is judged by
the median of the paired ratios.
"""

import dataclasses
from collections.abc import Iterator

from figures import Spread, size_text
from plan import KIB, MAIN, MIB, MOST_RANKS_OF_OTHERS, OTHERS, TYPES, Key
from results import Results, ratio_of
from words import describe

# The sizes of the tables.
SIZES = (64, KIB, 8 * KIB, 32 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB,
         128 * MIB)

# 2 ranks: all-reduce, all-gather, reduce-scatter; then the same, registered.
# The first row holds for all sizes up to its own.
_TWO_RANKS = {
    64: (1.2, 1.3, 1.2, 1.2, 1.3, 1.2),
    KIB: (0.9, 1.0, 0.9, 0.9, 1.0, 0.9),
    8 * KIB: (0.22, 0.3, 0.3, 0.22, 0.3, 0.3),
    32 * KIB: (0.28, 0.45, 0.45, 0.2, 0.35, 0.2),
    256 * KIB: (0.3, 0.75, 0.3, 0.12, 0.55, 0.12),
    MIB: (0.5, 0.8, 0.3, 0.22, 0.6, 0.13),
    4 * MIB: (0.5, 0.8, 0.3, 0.22, 0.6, 0.15),
    16 * MIB: (0.35, 0.85, 0.2, 0.18, 0.75, 0.08),
    128 * MIB: (0.3, 0.7, 0.2, 0.2, 0.62, 0.12),
}

# 4 ranks: (up to so many bytes, ratio); None: without end.
_FOUR_RANKS = {
    "all_reduce": ((KIB, 1.0), (256 * KIB, 0.7), (None, 0.5)),
    "all_gather": ((KIB, 1.0), (4 * MIB, 0.8), (None, 0.9)),
    "reduce_scatter": ((KIB, 1.0), (256 * KIB, 0.7), (None, 0.5)),
}

_EIGHT_RANKS = 1.0
_FRESH = 1.0
_OTHERS = ((64, 1.2), (None, 1.0))
_WITHOUT = ("alltoallv", "barrier")

# Bytes a second of 16-bit floats : float32's, at least.
_NARROW = 0.9
_NARROW_FROM = MIB


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A goal, and what was measured."""
    what: str
    size: int
    value: Spread
    goal: float
    reached: bool

    def __str__(self) -> str:
        return "%s, %s: %s, goal %g" % (self.what, size_text(self.size),
                                        self.value, self.goal)


def ratio_goal(key: Key, size: int) -> float | None:
    """What ours : MPI's may be at most; None if there's no goal."""
    if key.benchmark in OTHERS:
        if key.benchmark in _WITHOUT or key.ranks > MOST_RANKS_OF_OTHERS:
            return None
        return _by_size(_OTHERS, size)
    if key.fresh:
        return _FRESH
    if key.ranks == 2:
        row = _TWO_RANKS.get(max(size, SIZES[0]))
        column = MAIN.index(key.benchmark) + len(MAIN) * key.registered
        return row[column] if row else None
    if key.ranks == 4:
        return _by_size(_FOUR_RANKS[key.benchmark], size)
    return _EIGHT_RANKS if key.ranks == 8 else None


def _by_size(steps: tuple[tuple[int | None, float], ...], size: int) -> float:
    return next(ratio for end, ratio in steps if end is None or size <= end)


def judge(results: Results) -> list[Outcome]:
    """Every goal that something was measured for."""
    return [*_judge_ratios(results), *_judge_types(results)]


def _judge_ratios(results: Results) -> Iterator[Outcome]:
    for key in results.keys():
        for size, row in results.curve(key).items():
            goal = ratio_goal(key, size)
            if goal is None or row["ratio"] is None:
                continue
            ratio = ratio_of(row)
            yield Outcome(describe(key), size, ratio, goal,
                          ratio.median <= goal)


def _judge_types(results: Results) -> Iterator[Outcome]:
    for name in TYPES[1:]:
        for registered in (False, True):
            key = Key("all_reduce", 2, registered, type=name)
            for size, ratio in results.bandwidth_ratios(key).items():
                if size >= _NARROW_FROM:
                    yield Outcome(describe(key) + ", bytes/s : float's", size,
                                  ratio, _NARROW, ratio.median >= _NARROW)
