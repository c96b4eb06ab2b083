# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""The comparison as a table, line by line."""

from comparison import Row
from figures import Spread, size_text, time_text

_FORMAT = "%-22s %8s %-8s %9s %9s %8s %-18s %7s %7s  %s"


def head() -> str:
    return "\n".join((
        _FORMAT % ("", "", "", "time", "Gloo", "", "", "busbw", "Gloo", ""),
        _FORMAT % ("operation", "size", "dtype", "(us)", "(us)", "speedup",
                   "(range)", "(GB/s)", "(GB/s)", "#wrong")))


def line(row: Row) -> str:
    has_data = row.bytes > 0
    return _FORMAT % (
        row.operation, size_text(row.bytes), row.dtype,
        time_text(row.time_us.median), time_text(row.gloo_time_us.median),
        _times(row.speedup.median), _range(row.speedup),
        "%.3g" % row.busbw_gbps if has_data else "",
        "%.3g" % row.gloo_busbw_gbps if has_data else "",
        "N/A" if row.wrong is None else row.wrong)


def _times(factor: float) -> str:
    return "%.*fx" % (factor < 100, factor)


def _range(speedup: Spread) -> str:
    return "(%s to %s)" % (_times(speedup.min), _times(speedup.max))
