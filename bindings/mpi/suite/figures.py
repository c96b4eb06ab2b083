# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Figures of any benchmark: their spread, and how people read and write them.

What it doesn't know: which benchmarks there are. bindings/torch/bench uses it
too.
"""

import argparse
import dataclasses
import statistics
from collections.abc import Iterable
from typing import Any

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclasses.dataclass(frozen=True)
class Spread:
    median: float
    min: float
    max: float

    def __str__(self) -> str:
        return "%.2f (%.2f to %.2f)" % (self.median, self.min, self.max)


def spread_of(values: Iterable[float]) -> Spread:
    values = list(values)
    return Spread(statistics.median(values), min(values), max(values))


def size_text(size: int) -> str:
    """Bytes in the largest binary unit that leaves a whole number."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024 or size % 1024:
            return "%d %s" % (size, unit)
        size //= 1024
    return "%d GiB" % size


def time_text(time_us: float) -> str:
    """Microseconds, with three digits or all before the point."""
    return "%.*f" % ((time_us < 10) + (time_us < 100), time_us)


def size_argument(text: str) -> int:
    """Bytes on a command line."""
    digits, unit = (text[:-1], text[-1:]) if text[-1:] in _UNITS else \
        (text, "")
    if not digits.isdigit():
        raise argparse.ArgumentTypeError(
            "give bytes, or a number with %s" % ", ".join(_UNITS))
    return int(digits) * _UNITS.get(unit, 1)


def label_sizes(axes: Any) -> None:
    """Makes matplotlib axes' x one of sizes."""
    axes.set_xscale("log", base=2)
    axes.set_xlabel("size")
    axes.xaxis.set_major_formatter(lambda size, _: size_text(round(size)))
    axes.tick_params(axis="x", labelrotation=30)
    axes.grid(True, which="major", alpha=0.3)
