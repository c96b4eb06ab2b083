# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""What a trace of PyTorch's profiler says of communication and overlap.

Communication is the time in which at least one call of the backend was under
way. It's hidden as far as the thread that computes gradients was in an operator
meanwhile.
"""

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

# What the training step calls its backward pass in the trace.
BACKWARD = "benchmark: backward"

Interval = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Communication:
    """Of a whole trace, in microseconds."""
    busy_us: float
    hidden_us: float  # by computing in backward passes

    @property
    def hidden(self) -> float:
        """The share that's hidden."""
        return self.hidden_us / self.busy_us if self.busy_us else 0.0


def read(path: str, backend: str) -> Communication:
    """Of the trace in a file, and the calls of one backend."""
    with open(path, encoding="utf-8") as file:
        return of_events(json.load(file)["traceEvents"], backend)


def of_events(events: Iterable[dict[str, Any]],
              backend: str) -> Communication:
    """Of the events of a trace, as Chrome's format has them."""
    events = [event for event in events if event.get("ph") == "X"]
    calls = _union(_interval(event) for event in events
                   if event["name"].startswith(backend + ":"))
    passes = [event for event in events if event["name"] == BACKWARD]
    threads = {event["tid"] for event in passes}
    operators = _union(_interval(event) for event in events
                       if event["name"].startswith("aten::") and
                       event["tid"] in threads)
    computing = _both(operators, _union(map(_interval, passes)))
    return Communication(_length(calls), _length(_both(calls, computing)))


def _interval(event: dict[str, Any]) -> Interval:
    return event["ts"], event["ts"] + event["dur"]


def _length(intervals: Iterable[Interval]) -> float:
    return sum(end - begin for begin, end in intervals)


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    """In order, and none touches another."""
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
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
