# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""What traces of PyTorch's profiler say of communication and overlap.

A call is busy from when all ranks have begun it until it ends: before that, it
waits for a rank that still computes. It's hidden as far as the thread that
computes gradients is in an operator meanwhile.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

# What training calls these parts of itself in the trace.
STEP = "benchmark: step"
BACKWARD = "benchmark: backward"

Event = dict[str, Any]
Interval = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Communication:
    """Of a step, in microseconds."""
    busy_us: float  # with calls at the same time counted once
    hidden_us: float

    @property
    def hidden(self) -> float:
        """The share that's hidden."""
        return self.hidden_us / self.busy_us if self.busy_us else 0.0


def read(path: str) -> list[Event]:
    """What lasts, of a trace in Chrome's format; all ranks by one clock."""
    with open(path, encoding="utf-8") as file:
        return [event for event in json.load(file)["traceEvents"]
                if event.get("ph") == "X"]


def calls_of(events: Iterable[Event], backend: str) -> list[Interval]:
    """A backend's calls, in an order that's the same on all ranks."""
    return [_interval(event) for event in sorted(
        (event for event in events
         if event["name"].startswith(backend + ":")),
        key=lambda event: (event["name"], event["ts"]))]


def by_step(events: Iterable[Event],
            calls: Sequence[Sequence[Interval]]) -> list[Communication]:
    """Of each step of a rank, whose calls come first, then other ranks'."""
    if len({len(each) for each in calls}) != 1:
        raise ValueError("ranks made different calls")
    busy = _union([(max(begin for begin, _ in same), same[0][1])
                   for same in zip(*calls)])
    steps = [event for event in events if event["name"] == STEP]
    threads = {event["tid"] for event in steps}
    computing = _both(
        _when(events, lambda event: event["name"].startswith("aten::") and
              event["tid"] in threads),
        _when(events, lambda event: event["name"] == BACKWARD))
    found = []
    for step in steps:
        mine = _both(busy, [_interval(step)])
        found.append(Communication(_length(mine),
                                   _length(_both(mine, computing))))
    return found


def _interval(event: Event) -> Interval:
    return event["ts"], event["ts"] + event["dur"]


def _length(intervals: Iterable[Interval]) -> float:
    return sum(end - begin for begin, end in intervals)


def _when(events: Iterable[Event],
          wanted: Callable[[Event], bool]) -> list[Interval]:
    return _union(map(_interval, filter(wanted, events)))


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    """In order, and none touches another; what ends too early is none."""
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if end <= begin:
            continue
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((begin, end))
    return merged


def _both(some: list[Interval], others: list[Interval]) -> list[Interval]:
    """What's in both; each is in order."""
    found, i, j = [], 0, 0
    while i < len(some) and j < len(others):
        begin = max(some[i][0], others[j][0])
        end = min(some[i][1], others[j][1])
        if begin < end:
            found.append((begin, end))
        if some[i][1] < others[j][1]:
            i += 1
        else:
            j += 1
    return found
