#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Trains a model whose layers are spread over the ranks, as a pipeline.

    torchrun --nproc-per-node 2 pipeline.py

Each batch flows through in small parts, so that all ranks work at once; the
gradients are clipped by their norm over all ranks. Rank 0 then trains the
whole model alone: the losses must agree.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage, Schedule1F1B, ScheduleGPipe)

import common
import language

SCHEDULES = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}


def layers_of(model: language.Decoder, rank: int, size: int) -> nn.Module:
    """A rank's part: the first embeds, the last gives logits."""
    blocks = list(model.blocks)
    if size > len(blocks):
        raise SystemExit(f"{size} ranks for {len(blocks)} layers")
    layers = blocks[rank * len(blocks) // size:
                    (rank + 1) * len(blocks) // size]
    if rank == 0:
        layers.insert(0, model.embed)
    if rank == size - 1:
        layers += [model.norm, model.head]
    return nn.Sequential(*layers)


class Pipeline:
    """A rank's stage, and what it's trained with."""

    def __init__(self, options: argparse.Namespace, rank: int,
                 size: int) -> None:
        layers = layers_of(language.build_model(options.seed), rank, size)
        stage = PipelineStage(layers, rank, size, torch.device("cpu"))
        self._schedule = SCHEDULES[options.schedule](
            stage, options.parts, loss_fn=language.loss_of)
        self._parameters = list(layers.parameters())
        self._optimizer = torch.optim.AdamW(self._parameters,
                                            lr=language.LEARNING_RATE)
        self._text = language.Text(options)
        self._first, self._last = rank == 0, rank == size - 1

    def step(self, number: int) -> float:
        """Returns the loss of the whole batch, on every rank."""
        tokens, targets = self._text.batch(number)
        self._optimizer.zero_grad()
        losses: list[torch.Tensor] = []
        self._schedule.step(*([tokens] if self._first else []),
                            target=targets if self._last else None,
                            losses=losses if self._last else None)
        self._clip()
        self._optimizer.step()
        loss = torch.stack(losses).mean() if self._last else torch.zeros(())
        dist.broadcast(loss, dist.get_world_size() - 1)
        return loss.item()

    def _clip(self) -> None:
        norm = nn.utils.get_total_norm(p.grad for p in self._parameters)
        square = norm.square()
        dist.all_reduce(square)
        nn.utils.clip_grads_with_norm_(self._parameters, 1.0, square.sqrt())


def parse() -> argparse.Namespace:
    parser = language.parser(__doc__, steps=40)
    parser.add_argument("--schedule", choices=SCHEDULES, default="1f1b")
    parser.add_argument("--parts", type=int, default=8,
                        help="parts of a batch: at least one a rank, and "
                        "--batch a multiple of it (default %(default)s)")
    return parser.parse_args()


def main() -> None:
    options = parse()
    with common.job(options) as (rank, size):
        title = f"{size} stages, {options.schedule}"
        losses = common.run(Pipeline(options, rank, size).step,
                            range(options.steps), title)
        if rank == 0:
            alone = language.Trainer(language.build_model(options.seed),
                                     options)
            language.compare(losses, title, alone,
                             options.output / "pipeline.png")


if __name__ == "__main__":
    main()
