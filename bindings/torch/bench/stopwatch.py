# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Times calls in blocks that take turns, and compares them pair by pair."""

import dataclasses
import time
from collections.abc import Callable, Sequence

from figures import Spread, spread_of
from ranks import Ranks

# What a block of calls lasts, unless one call lasts longer.
BLOCK_S = 0.03
_MOST_CALLS = 20_000


@dataclasses.dataclass(frozen=True)
class Timed:
    """What's measured, and what each block of calls begins with, untimed."""
    call: Callable[[], object]
    prepare: Callable[[], None] = lambda: None


class Stopwatch:
    """Of one thing that all ranks do together."""

    def __init__(self, ranks: Ranks, timed: Timed, block_s: float = BLOCK_S):
        self._ranks = ranks
        self._timed = timed
        self.calls = 1
        self.seconds: list[float] = []  # of a call on the slowest rank
        self._warm_up(block_s)

    def _warm_up(self, block_s: float) -> None:
        """Finds how many calls fill a block; the first one counts for none."""
        self._block()
        elapsed = self._block()
        while elapsed < block_s / 4 and self.calls < _MOST_CALLS:
            self.calls = min(self.calls * 4, _MOST_CALLS)
            elapsed = self._block() * self.calls
        calls = round(self.calls * block_s / max(elapsed, 1e-9))
        self.calls = max(1, min(calls, _MOST_CALLS))

    def _block(self) -> float:
        call = self._timed.call
        self._timed.prepare()
        self._ranks.meet()
        began = time.perf_counter()
        for _ in range(self.calls):
            call()
        elapsed = time.perf_counter() - began
        return self._ranks.most(elapsed / self.calls)

    def take(self) -> None:
        """One block more."""
        self.seconds.append(self._block())

    def time_us(self) -> Spread:
        return spread_of(second * 1e6 for second in self.seconds)


def take_turns(watches: Sequence[Stopwatch], rounds: int) -> None:
    """A block of each in each round; who's first changes."""
    for number in range(rounds):
        for watch in watches if number % 2 == 0 else reversed(watches):
            watch.take()


def ratio(one: Stopwatch, other: Stopwatch) -> Spread:
    """One's time : the other's, over the rounds."""
    return spread_of(a / b for a, b in zip(one.seconds, other.seconds))
