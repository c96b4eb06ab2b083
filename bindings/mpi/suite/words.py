# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""How sizes, times and curves are written for people."""

from plan import Key

_NAMES = {"alltoall": "all-to-all", "alltoallv": "all-to-all-v",
          "sendrecv": "send/receive"}


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


def collective(benchmark: str) -> str:
    return _NAMES.get(benchmark, benchmark.replace("_", "-"))


def column_text(key: Key) -> str:
    return collective(key.benchmark) + ", registered" * key.registered


def describe(key: Key) -> str:
    words = ["%d ranks" % key.ranks, column_text(key)]
    words += ["fresh"] * key.fresh
    words += [key.type] if key.type != "float" else []
    return ", ".join(words)
