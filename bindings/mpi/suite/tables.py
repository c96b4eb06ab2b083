# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""The results as Markdown, in the form of the project's README.md."""

import dataclasses
from collections.abc import Callable, Sequence

import goals
from figures import size_text, time_text
from plan import MAIN, OTHERS, TYPES, Key
from results import Json, Results, ratio_of
from words import column_text

SIZED_OTHERS = tuple(name for name in OTHERS if name != "barrier")

# Beyond so many processors, other work disturbs the times.
BUSY = 0.2

Cell = Callable[[Key, int], str]


def report(results: Results, machine: Json) -> str:
    """Everything, from the machine to the goals."""
    parts = ["# Benchmarks", _opening(machine)]
    ranks_run = sorted({key.ranks for key in results.keys()})
    for ranks in ranks_run:
        place = where(ranks, machine["cores"])
        keys = [Key(name, ranks, registered)
                for registered in (False, True) for name in MAIN]
        parts += _titled(place, table(results, keys, goals.SIZES))
        keys = [dataclasses.replace(key, fresh=True) for key in keys]
        parts += _titled(place + ", the input fresh each time",
                         table(results, keys))
        parts += ["%s, barrier: %s" % (place, row_text(row)) for row in
                  results.curve(Key("barrier", ranks)).values()]
        for registered in (False, True):
            keys = [Key(name, ranks, registered) for name in SIZED_OTHERS]
            parts += _titled(
                "%s, the others%s" % (place, ", registered" * registered),
                table(results, keys))
    parts += _titled("All-reduce, bytes a second of 16-bit floats : float32's "
                     "(more is better), 2 ranks", _type_table(results))
    return "\n\n".join(parts + [_goals(results)]) + "\n"


def where(ranks: int, cores: int) -> str:
    """How ranks were placed."""
    if ranks <= cores:
        return "%d ranks, a core each" % ranks
    return "%d ranks on %d core%s" % (ranks, cores, "s" * (cores > 1))


def table(results: Results, keys: Sequence[Key],
          sizes: Sequence[int] | None = None) -> str:
    """A column for each curve; without sizes, a row for each measured one.

    Empty if nothing was measured.
    """
    curves = {key: results.curve(key) for key in keys}
    curves = {key: curve for key, curve in curves.items() if curve}
    if sizes is None:
        sizes = sorted({size for curve in curves.values() for size in curve})

    def cell(key: Key, size: int) -> str:
        row = curves[key].get(size)
        return row_text(row) if row else ""
    return _markdown(list(curves), sizes, cell)


def row_text(row: Json) -> str:
    """Ours : MPI's = median ratio, and the range of ratios."""
    if row["ratio"] is None:
        return time_text(row["time_us"])
    ratio = ratio_of(row)
    return "%s : %s = **%.2f** (%.2f to %.2f)" % (
        time_text(row["time_us"]), time_text(row["mpi_time_us"]), ratio.median,
        ratio.min, ratio.max)


def _type_table(results: Results) -> str:
    keys = [Key("all_reduce", 2, registered, type=name)
            for registered in (False, True) for name in TYPES[1:]]
    ratios = {key: results.bandwidth_ratios(key) for key in keys}
    keys = [key for key in keys if ratios[key]]
    sizes = sorted({size for curve in ratios.values() for size in curve})

    def cell(key: Key, size: int) -> str:
        ratio = ratios[key].get(size)
        return "**%.2f** (%.2f to %.2f)" % (
            ratio.median, ratio.min, ratio.max) if ratio else ""
    return _markdown(keys, sizes, cell)


def _markdown(keys: Sequence[Key], sizes: Sequence[int], cell: Cell) -> str:
    heads = [column_text(key) if key.type == "float" else
             key.type + ", registered" * key.registered for key in keys]
    lines = []
    for size in sizes:
        cells = [cell(key, size) for key in keys]
        if any(cells):
            lines.append([size_text(size), *cells])
    if not lines:
        return ""
    lines = ["| %s |" % " | ".join(line)
             for line in [["bytes", *heads], *lines]]
    return "\n".join([lines[0], "|" + "---|" * (len(heads) + 1), *lines[1:]])


def _titled(title: str, text: str) -> list[str]:
    return [title + ":", text] if text else []


def _opening(machine: Json) -> str:
    cache_line = machine["cache_line_ns"]
    facts = ["Open MPI " + machine["open_mpi"],
             "%s with %d cores" % (machine["cpu"], machine["cores"]),
             "Linux " + machine["kernel"]]
    if cache_line:
        facts.append("a cache line from core to core in %.0f ns (%.0f to %.0f)"
                     % (cache_line["median"], cache_line["min"],
                        cache_line["max"]))
    if machine["busy_cpus"] >= BUSY:
        facts.append("other work kept %.1f processors busy before the first "
                     "run" % machine["busy_cpus"])
    facts.append("revision %s, %s" % (machine["revision"], machine["date"]))
    return "Microseconds, ours : Open MPI's, and the median of the paired " \
        "ratios with their\nrange (smaller is better); float32, out of " \
        "place.\n\n- " + "\n- ".join(facts)


def _goals(results: Results) -> str:
    outcomes = goals.judge(results)
    missed = [outcome for outcome in outcomes if not outcome.reached]
    lines = ["## Goals", "", summary(outcomes)]
    if missed:
        lines += ["", "Not reached:", ""]
        lines += ["- %s" % outcome for outcome in missed]
    return "\n".join(lines)


def summary(outcomes: Sequence[goals.Outcome]) -> str:
    """One line."""
    if not outcomes:
        return "No goal is set for what was run."
    reached = sum(outcome.reached for outcome in outcomes)
    return "%d of %d goals reached." % (reached, len(outcomes))
