# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""What the examples share: options, the job's frame, progress, plots, checks.

    options = common.parser(__doc__, steps=100).parse_args()
    with common.job(options) as (rank, size):
        losses = common.run(step, range(options.steps), "DDP")
"""

import argparse
import contextlib
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import matplotlib.figure
import torch
import torch.distributed as dist
import tqdm
import trnccl


def parser(description: str, steps: int) -> argparse.ArgumentParser:
    """The options that all examples have."""
    made = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--steps", type=int, default=steps,
                      help="steps of training (default %(default)s)")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--backend", default="neuron",
                      help='of torch.distributed; "gloo" to compare with')
    made.add_argument("--output", type=pathlib.Path, metavar="FOLDER",
                      default=pathlib.Path("results"),
                      help="where the plot goes (default %(default)s)")
    return made


@contextlib.contextmanager
def job(options: argparse.Namespace) -> Iterator[tuple[int, int]]:
    """Joins the processes of the launcher; gives rank and size."""
    trnccl.set_launch_environment()
    if "RANK" not in os.environ:
        raise SystemExit("start it by torchrun --nproc-per-node 2 ...")
    torch.manual_seed(options.seed)
    dist.init_process_group(options.backend)
    try:
        yield dist.get_rank(), dist.get_world_size()
        # Some wait here for what rank 0 does alone at the end.
        dist.barrier()
    finally:
        dist.destroy_process_group()


def run(step: Callable[[int], float], steps: range,
        title: str) -> list[float]:
    """Makes the steps, with a progress bar on rank 0; returns their losses."""
    losses = []
    with tqdm.tqdm(steps, desc=title, unit=" steps", mininterval=0.5,
                   disable=dist.get_rank() != 0) as bar:
        for number in bar:
            losses.append(step(number))
            bar.set_postfix(loss=f"{losses[-1]:.3f}", refresh=False)
    return losses


def plot(path: pathlib.Path, curves: Mapping[str, Sequence[float]]) -> None:
    """Draws losses over steps into a PNG."""
    figure = matplotlib.figure.Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    # The first is drawn broad, so that it shows under one that covers it.
    looks = [{"linewidth": 4, "alpha": 0.4}, {"linestyle": "--"}]
    for (label, losses), look in zip(curves.items(), looks):
        axes.plot(range(1, len(losses) + 1), losses, label=label, **look)
    axes.set(title=path.stem.replace("_", " "), xlabel="step", ylabel="loss")
    axes.grid(alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    print(f"plot: {path}")


def check(holds: bool, text: str) -> None:
    """Says what was promised; ends the job where it doesn't hold."""
    print(("right: " if holds else "WRONG: ") + text, flush=True)
    if not holds:
        raise SystemExit(1)


def check_curves(found: Sequence[float], wanted: Sequence[float],
                 tolerance: float) -> None:
    largest = max(abs(one - other)
                  for one, other in zip(found, wanted, strict=True))
    check(largest <= tolerance,
          f"the losses of {len(found)} steps, from {found[0]:.3f} to "
          f"{found[-1]:.3f}, differ by at most {largest:.1e} (allowed: "
          f"{tolerance:.0e})")
