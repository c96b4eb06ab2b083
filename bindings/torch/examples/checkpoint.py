#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Saves a job under way, and goes on with another number of ranks.

    torchrun --nproc-per-node 2 checkpoint.py --save results/checkpoint
    torchrun --nproc-per-node 3 checkpoint.py --resume results/checkpoint

Both train a model by FSDP2. The first saves it and its optimizer half-way by
torch.distributed.checkpoint, then trains on. The second starts from what was
saved: its losses must be those that the first went on to see.
"""

import argparse
import math
import pathlib
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    get_state_dict, set_state_dict)
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import common
import language

# Beside the checkpoint: what resuming is checked against.
LOSSES = "losses.pt"


class Job(Stateful):
    """Model and optimizer, in shards, as a checkpoint holds them."""

    def __init__(self, trainer: language.Trainer) -> None:
        self._parts = trainer.model, trainer.optimizer

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(*self._parts)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        set_state_dict(*self._parts, model_state_dict=state["model"],
                       optim_state_dict=state["optimizer"])


def make_trainer(seed: int, options: argparse.Namespace) -> language.Trainer:
    model = language.build_model(seed)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in [*model.blocks, model]:
        fully_shard(module, mesh=mesh)
    return language.Trainer(
        model, options, language.Share(dist.get_rank(), mesh.size()))


def save(options: argparse.Namespace) -> None:
    trainer = make_trainer(options.seed, options)
    half = options.steps // 2
    losses = trainer.run(range(half), "to be saved")
    dcp.save({"job": Job(trainer)}, storage_writer=dcp.FileSystemWriter(
        options.save, overwrite=True))
    losses += trainer.run(range(half, options.steps), "goes on")
    if dist.get_rank() == 0:
        torch.save({"half": half, "losses": losses}, options.save / LOSSES)
        print(f"saved at step {half} by {dist.get_world_size()} ranks")


def resume(options: argparse.Namespace) -> None:
    # Other weights than the saved ones, until those are loaded.
    trainer = make_trainer(options.seed + 1, options)
    dcp.load({"job": Job(trainer)}, checkpoint_id=options.resume)
    first = torch.load(options.resume / LOSSES)
    half, losses = first["half"], first["losses"]
    resumed = trainer.run(range(half, len(losses)), "resumed")
    if dist.get_rank() == 0:
        common.plot(options.output / "checkpoint.png",
                    {"not interrupted": losses,
                     f"resumed at step {half} by {dist.get_world_size()} "
                     "ranks": [math.nan] * half + resumed})
        common.check_curves(resumed, losses[half:], language.TOLERANCE)


def parse() -> argparse.Namespace:
    parser = language.parser(__doc__, steps=40)
    what = parser.add_mutually_exclusive_group(required=True)
    for name in ("--save", "--resume"):
        what.add_argument(name, type=pathlib.Path, metavar="FOLDER")
    return parser.parse_args()


def main() -> None:
    options = parse()
    with common.job(options):
        if options.save:
            save(options)
        else:
            resume(options)


if __name__ == "__main__":
    main()
