#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Times the backend of torch.distributed against Gloo, results checked.

    torchrun --nproc-per-node 2 bindings/torch/benchmark.py \\
        --compare gloo --json results.json --plot results.png

bindings/torch/bench/README.md says what is timed and how.
"""

import argparse
import dataclasses
import json
import os
import sys
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.normpath(os.path.join(_HERE, "../.."))
# Not the script's own folder: the sources of trnccl, unbuilt, stand there.
sys.path[:1] = [os.path.join(_HERE, "bench"), os.path.join(_HERE, "examples"),
                os.path.join(_ROOT, "bindings/mpi/suite")]

import comparison  # noqa: E402
import machine  # noqa: E402
import overhead  # noqa: E402
import report  # noqa: E402
import torch  # noqa: E402
from figures import size_argument  # noqa: E402
from ranks import Ranks  # noqa: E402

WRONG_RESULTS = 7  # nccl-tests' exit code


def main() -> int:
    options = _arguments().parse_args()
    facts = machine.facts(_ROOT)
    ranks = Ranks(bind=options.bind)
    facts.update(torch=torch.__version__, placement=ranks.placement(),
                 torch_threads=torch.get_num_threads())
    ranks.say("# %s; one thread for torch's operators; PyTorch %s; %s" % (
        ranks.placement(), torch.__version__, facts["cpu"]))
    if facts["busy_cpus"] >= 0.2:
        ranks.say("# Other work keeps %.1f processors busy: expect worse "
                  "figures, and a wide range." % facts["busy_cpus"])
    results: dict[str, Any] = {"machine": facts, "ranks": ranks.size}
    wrong = _run(options, ranks, results)
    if ranks.rank == 0 and options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    ranks.close()
    return WRONG_RESULTS if wrong else 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Runs under torchrun. Without --compare, --overhead and "
        "--training, it compares with gloo.")
    parser.add_argument("--compare", choices=["gloo"],
                        help="calls on this backend and Gloo's, in turn")
    parser.add_argument("--overhead", action="store_true",
                        help="a small call, and one that does nothing")
    parser.add_argument("--training", action="store_true",
                        help="steps of DDP and FSDP2 on both")
    parser.add_argument("-b", "--minbytes", type=size_argument, metavar="SIZE",
                        help="smallest size, with K, M or G")
    parser.add_argument("-e", "--maxbytes", type=size_argument, metavar="SIZE",
                        help="largest size")
    parser.add_argument("-f", "--stepfactor", type=int, metavar="N",
                        help="from size to size; without it, those of %s from "
                        "-b to -e" % ", ".join(map(str, comparison.SIZES)))
    parser.add_argument("-d", "--dtype", type=_names(comparison.DTYPES),
                        default=list(comparison.DTYPES), metavar="NAME,...",
                        help="of %s" % ", ".join(comparison.DTYPES))
    parser.add_argument("--only", type=_names(comparison.NAMES),
                        default=comparison.NAMES, metavar="NAME,...",
                        help="of %s" % ", ".join(comparison.NAMES))
    parser.add_argument("--rounds", type=int, default=5, metavar="N",
                        help="blocks of calls of each backend (5)")
    parser.add_argument("--no-bind", dest="bind", action="store_false",
                        help="leave it to the system where ranks run")
    parser.add_argument("--json", metavar="FILE", type=_file)
    parser.add_argument("--plot", metavar="FILE", type=_file,
                        help="a picture, PNG")
    parser.add_argument("--traces", metavar="DIR", default="results/traces",
                        help="where --training puts the profiler's traces")
    return parser


def _file(name: str) -> str:
    """The same, once its folder is there: an hour's figures need a place."""
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    return name


def _names(known):
    def parse(text: str) -> list[str]:
        names = list(dict.fromkeys(text.split(",")))
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError("there's no %r" % name)
        return names
    return parse


def _sizes(options: argparse.Namespace) -> list[int]:
    least = options.minbytes or comparison.SIZES[0]
    most = options.maxbytes or max(least, comparison.SIZES[-1])
    if options.stepfactor is None:
        return [size for size in comparison.SIZES if least <= size <= most]
    sizes = [least]
    while options.stepfactor > 1 and sizes[-1] * options.stepfactor <= most:
        sizes.append(sizes[-1] * options.stepfactor)
    return sizes


def _run(options: argparse.Namespace, ranks: Ranks,
         results: dict[str, Any]) -> int:
    """What the options ask for; how many elements were wrong."""
    wrong = 0
    if options.compare or not (options.overhead or options.training):
        rows = _compare(options, ranks)
        results["rows"] = [row.json() for row in rows]
        wrong = sum(row.wrong or 0 for row in rows)
    if options.overhead:
        found = overhead.measure(ranks, options.rounds)
        ranks.say(str(found))
        results["overhead"] = dataclasses.asdict(found)
    if options.training:
        # Not above: all else needs no models.
        import training
        trained = training.measure(ranks, options.rounds, options.traces)
        for one in trained:
            ranks.say(str(one))
        results["training"] = [dataclasses.asdict(one) for one in trained]
    return wrong


def _compare(options: argparse.Namespace,
             ranks: Ranks) -> list[comparison.Row]:
    choice = comparison.Choice(options.only, _sizes(options), options.dtype,
                               options.rounds)
    ranks.say(report.head())
    rows = []
    for row in comparison.sweep(ranks, choice):
        ranks.say(report.line(row))
        rows.append(row)
    if options.plot and ranks.rank == 0:
        # Not above: all else needs no matplotlib.
        import picture
        picture.draw(rows, "trnccl and Gloo under PyTorch %s; %s; times of the "
                     "slowest rank" % (torch.__version__, ranks.placement()),
                     options.plot)
    return rows


if __name__ == "__main__":
    sys.exit(main())
