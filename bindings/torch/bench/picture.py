# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""A picture of the comparison: time and bus bandwidth over size."""

from collections.abc import Sequence

import matplotlib
import matplotlib.figure
from comparison import Row
from figures import label_sizes

_LOOKS = ("-", "--", ":")  # a dtype each
_WIDTH_IN, _HEIGHT_IN = 11, 3.2


def draw(rows: Sequence[Row], title: str, path: str) -> None:
    """A pair of axes for each operation that has data."""
    matplotlib.use("Agg")
    operations = list(dict.fromkeys(row.operation for row in rows
                                    if row.bytes > 0))
    if not operations:
        return
    figure = matplotlib.figure.Figure(
        figsize=(_WIDTH_IN, _HEIGHT_IN * len(operations)),
        layout="constrained")
    figure.suptitle(title, fontsize=10)
    grid = figure.subplots(len(operations), 2, squeeze=False)
    for (time, bandwidth), operation in zip(grid, operations):
        mine = [row for row in rows if row.operation == operation]
        _draw_lines(time, bandwidth, mine)
        time.set_title(operation, fontsize=10)
        time.set_yscale("log")
        time.set_ylabel("time (us)")
        bandwidth.set_ylim(bottom=0)
        bandwidth.set_ylabel("bus bandwidth (GB/s)")
        for axes in (time, bandwidth):
            label_sizes(axes)
        time.legend(fontsize=8)
    figure.savefig(path, dpi=100)


def _draw_lines(time, bandwidth, rows: Sequence[Row]) -> None:
    dtypes = dict.fromkeys(row.dtype for row in rows)
    for dtype, look in zip(dtypes, _LOOKS):
        typed = [row for row in rows if row.dtype == dtype]
        sizes = [row.bytes for row in typed]
        for label, color, times, gbps in (
                ("trnccl", "C0", [row.time_us.median for row in typed],
                 [row.busbw_gbps for row in typed]),
                ("Gloo", "C1", [row.gloo_time_us.median for row in typed],
                 [row.gloo_busbw_gbps for row in typed])):
            style = {"color": color, "linestyle": look, "marker": "o",
                     "markersize": 3, "label": "%s, %s" % (label, dtype)}
            time.plot(sizes, times, **style)
            bandwidth.plot(sizes, gbps, **style)
