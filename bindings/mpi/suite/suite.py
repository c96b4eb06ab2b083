# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Runs the benchmarks against Open MPI, and writes tables and pictures.

bin/benchmark is the command; it sets up and builds first. The folder of results
gets, of each mpirun, runs/NAME.json and .log; results.json, with all of them
and the machine's facts; tables.md; plots/*.png.
"""

import argparse
import dataclasses
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

import goals
import launcher
import machine
import plan
import tables
from figures import size_argument, size_text
from results import Finished, Json, Results
from words import describe

ROOT = os.path.normpath(os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "../../.."))
BINARIES = os.path.join(ROOT, "bazel-bin/bindings/mpi")
WRONG_RESULTS = 7  # exit code of a benchmark


def main() -> int:
    options = _arguments().parse_args()
    runs = plan.make_plan(_choice(options))
    if not runs:
        _fail("nothing to run with these --only, --ranks and --max-bytes.")
    cores = machine.cores()
    if options.list:
        for run in runs:
            print(shlex.join(launcher.command(
                run, os.path.relpath(BINARIES), cores)))
        return 0
    facts = {"open_mpi": _check_tools(), **machine.facts(ROOT)}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    _make_folders(options.out)
    if facts["busy_cpus"] >= tables.BUSY:
        print("== Other work keeps %.1f processors busy: expect worse figures, "
              "and a wide spread." % facts["busy_cpus"])
    results, failed = _run_all(runs, cores, options.out)
    if not results.finished:
        _fail("no benchmark came to a good end.")
    _write(results, facts, options.out)
    for line in failed:
        print("FAILED " + line)
    return 1 if failed else 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bin/benchmark", formatter_class=argparse.RawTextHelpFormatter,
        description="Builds the benchmarks, runs them against Open MPI in the "
        "same runs, and writes\ntables, JSON and plots. It takes a quarter of "
        "an hour and wants the machine for\nitself.")
    parser.add_argument(
        "--quick", action="store_true",
        help="a minute: few sizes, and 2 ranks unless --ranks says otherwise")
    parser.add_argument(
        "--only", metavar="NAME,...", type=_names, default=plan.BENCHMARKS,
        help="of: " + " ".join(plan.BENCHMARKS[:6]) + "\n" +
        " ".join(plan.BENCHMARKS[6:]))
    parser.add_argument(
        "--ranks", metavar="N,...", type=_ranks,
        help="default: %s; beyond %d, %s only" % (
            ",".join(map(str, plan.RANKS)), plan.MOST_RANKS_OF_OTHERS,
            ", ".join(plan.MAIN)))
    parser.add_argument(
        "--max-bytes", metavar="SIZE", type=size_argument,
        default=128 * plan.MIB,
        help="largest size, with K or M; at most 128M, the default")
    parser.add_argument(
        "--out", metavar="DIR", type=os.path.abspath,
        default=os.path.join(ROOT, "benchmark-results"),
        help="where results go (default: benchmark-results of this tree)")
    parser.add_argument("--list", action="store_true",
                        help="print what would run, and do nothing")
    return parser


def _names(text: str) -> list[str]:
    names = list(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in plan.BENCHMARKS:
            raise argparse.ArgumentTypeError("there's no %r" % name)
    return names


def _ranks(text: str) -> list[int]:
    try:
        ranks = list(dict.fromkeys(map(int, text.split(","))))
    except ValueError:
        ranks = []
    if not ranks or min(ranks) < 2:
        raise argparse.ArgumentTypeError("give numbers from 2, as in 2,4")
    return ranks


def _choice(options: argparse.Namespace) -> plan.Choice:
    ranks = options.ranks or (plan.RANKS[:1] if options.quick else plan.RANKS)
    return plan.Choice(options.only, ranks, options.max_bytes,
                       plan.QUICK if options.quick else plan.FULL)


def _check_tools() -> str:
    """Open MPI's version, if all is there."""
    version = machine.open_mpi_version()
    if version is None:
        _fail("there's no mpirun of Open MPI in PATH: bin/setup installs it.")
    for name in plan.BENCHMARKS:
        if not os.access(os.path.join(BINARIES, name + "_perf"), os.X_OK):
            _fail("%s_perf isn't built: run bin/benchmark." % name)
    try:
        import matplotlib  # noqa: F401 (only whether it's there)
    except ImportError:
        _fail("there's no matplotlib: run bin/benchmark, which uses .venv.")
    return version


def _make_folders(out: str) -> None:
    """And empties them of what an earlier run wrote there."""
    try:
        for folder in (_in_runs(out), _in_plots(out)):
            os.makedirs(folder, exist_ok=True)
            for name in os.listdir(folder):
                if name.endswith((".json", ".log", ".png")):
                    os.remove(os.path.join(folder, name))
    except OSError as error:
        _fail("can't write the results: %s" % error)


def _in_runs(out: str, name: str = "") -> str:
    return os.path.join(out, "runs", name)


def _in_plots(out: str) -> str:
    return os.path.join(out, "plots")


def _run_all(runs: Sequence[plan.Run], cores: int, out: str
             ) -> tuple[Results, list[str]]:
    """What was measured, and what failed, a line each."""
    finished, failed = [], []
    began = time.monotonic()
    for number, run in enumerate(runs, 1):
        elapsed = time.monotonic() - began
        print("[%2d/%d %2d:%02d] %s, %s to %s" % (
            number, len(runs), elapsed // 60, elapsed % 60, describe(run.key),
            size_text(run.sizes.smallest), size_text(run.sizes.largest)),
            flush=True)
        start = time.monotonic()
        try:
            result = _run_one(run, cores, out)
        except RuntimeError as error:
            failed.append("%s: %s" % (run.name, error))
            print("  FAILED: %s" % error, flush=True)
            continue
        finished.append(Finished(run, time.monotonic() - start, result))
    return Results(finished), failed


def _run_one(run: plan.Run, cores: int, out: str) -> Json:
    path = _in_runs(out, run.name)
    words = launcher.command(run, BINARIES, cores)
    code = launcher.execute([*words, "-J", path + ".json"], path + ".log")
    if code == 0:
        with open(path + ".json", encoding="utf-8") as file:
            return json.load(file)
    if code is None:
        cause = "no end after %d s" % launcher.TIMEOUT_S
    elif code == WRONG_RESULTS:
        cause = "wrong results"
    else:
        cause = "exit code %d" % code
    raise RuntimeError("%s; see %s.log" % (cause, path))


def _write(results: Results, facts: Json, out: str) -> None:
    # Not above: whoever asks for --help or --list needs no matplotlib.
    import plots
    cache_line = results.cache_line_ns()
    facts["cache_line_ns"] = \
        dataclasses.asdict(cache_line) if cache_line else None
    outcomes = goals.judge(results)
    merged = {"machine": facts,
              "goals": [dataclasses.asdict(each) for each in outcomes],
              "runs": [done.json() for done in results.finished]}
    with open(os.path.join(out, "results.json"), "w",
              encoding="utf-8") as file:
        json.dump(merged, file, indent=1)
    with open(os.path.join(out, "tables.md"), "w", encoding="utf-8") as file:
        file.write(tables.report(results, facts))
    pictures = plots.draw_all(results, facts, _in_plots(out))
    for outcome in outcomes:
        if not outcome.reached:
            print("not reached: %s" % outcome)
    print("== %s\n== %d plots, tables.md and results.json are in %s" % (
        tables.summary(outcomes), pictures, out))


def _fail(text: str) -> NoReturn:
    sys.exit("bin/benchmark: " + text)


if __name__ == "__main__":
    sys.exit(main())
