# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Pictures: time and bus bandwidth over size, with the limit drawn in."""

import dataclasses
import os
from collections.abc import Mapping

import matplotlib
import matplotlib.figure

from figures import label_sizes
from plan import Key
from results import Json, Results
from tables import where
from words import collective

OURS, REGISTERED, MPI, LIMIT = "C0", "C2", "C1", "0.4"


@dataclasses.dataclass
class Line:
    """One curve of a picture, and how it looks."""
    label: str
    color: str
    style: str
    sizes: list[int]
    time_us: list[float]
    busbw_gbps: list[float]


def lines_of(results: Results, key: Key) -> list[Line]:
    """Ours, ours registered, MPI's and the limit, as far as measured."""
    plain = results.curve(key)
    registered = results.curve(dataclasses.replace(key, registered=True))
    either = plain or registered
    lines = [_line("trnccl", OURS, "o-", plain, "time_us"),
             _line("trnccl, registered", REGISTERED, "s-", registered,
                   "time_us"),
             _line("Open MPI", MPI, "^-", either, "mpi_time_us"),
             _line("limit of the copies and folds", LIMIT, "--",
                   _best_limits(plain, registered), "limit_us")]
    return [line for line in lines if line.sizes]


def _best_limits(*curves: Mapping[int, Json]) -> Mapping[int, Json]:
    """The work is the same on all memory; what disturbed it wasn't."""
    best: dict[int, Json] = {}
    for curve in curves:
        for size, row in curve.items():
            if row["limit_us"] is None:
                continue
            if size not in best or row["limit_us"] < best[size]["limit_us"]:
                best[size] = row
    return dict(sorted(best.items()))


def _line(label: str, color: str, style: str, rows: Mapping[int, Json],
          field: str) -> Line:
    line = Line(label, color, style, [], [], [])
    for size, row in rows.items():
        if not row[field]:
            continue
        line.sizes.append(size)
        line.time_us.append(row[field])
        line.busbw_gbps.append(
            row["busbw_gbps"] * row["time_us"] / row[field])
    return line


def draw_all(results: Results, machine: Json, folder: str) -> int:
    """A picture for each collective and number of ranks; how many."""
    matplotlib.use("Agg")
    keys = dict.fromkeys(dataclasses.replace(key, registered=False)
                         for key in results.keys()
                         if key.benchmark != "barrier")
    for key in keys:
        name = "%s-%d-ranks%s.png" % (key.benchmark, key.ranks,
                                      "-fresh" * key.fresh)
        _draw(lines_of(results, key), _title(key, machine), machine).savefig(
            os.path.join(folder, name), dpi=120)
    return len(keys)


def _title(key: Key, machine: Json) -> str:
    return "%s, %s%s (float32, out of place)\n%s, Open MPI %s" % (
        collective(key.benchmark), where(key.ranks, machine["cores"]),
        ", the input fresh each time" * key.fresh, machine["cpu"],
        machine["open_mpi"])


def _draw(lines: list[Line], title: str, machine: Json
          ) -> matplotlib.figure.Figure:
    figure = matplotlib.figure.Figure(figsize=(11, 4.5), layout="constrained")
    figure.suptitle(title, fontsize=10)
    time, bandwidth = figure.subplots(1, 2)
    for line in lines:
        look = {"color": line.color, "label": line.label, "markersize": 4}
        time.plot(line.sizes, line.time_us, line.style, **look)
        bandwidth.plot(line.sizes, line.busbw_gbps, line.style, **look)
    measured = [us for line in lines if line.color != LIMIT
                for us in line.time_us]
    cache_line = machine["cache_line_ns"]
    if cache_line:
        us = cache_line["median"] / 1000
        time.axhline(us, color=LIMIT, linestyle=":", linewidth=1,
                     label="a cache line, one way")
        measured.append(us)
    time.set_yscale("log")
    # The limit of small sizes is far below what any exchange takes.
    time.set_ylim(bottom=0.5 * min(measured))
    time.set_ylabel("time (us)")
    fastest = max(gbps for line in lines if line.color != LIMIT
                  for gbps in line.busbw_gbps)
    bandwidth.set_ylim(0, 2 * fastest)
    bandwidth.set_ylabel("bus bandwidth (GB/s)")
    for axes in (time, bandwidth):
        label_sizes(axes)
    time.legend(fontsize=8)
    return figure
