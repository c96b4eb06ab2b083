#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Trains by tensor and sequence parallelism within FSDP2, on a 2-D mesh.

    torchrun --nproc-per-node 4 tensor_parallel.py

Neighbouring ranks split each matrix, and what each holds is sharded between
the ranks that see other data: 4 ranks are a mesh of 2 x 2, 2 ranks one of
1 x 2. Rank 0 then trains the same model alone: the losses must agree.
"""

import argparse
import warnings

from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
    parallelize_module)

import common
import language

# Of views that are written to, which nobody does here.
warnings.filterwarnings("ignore", "FSDP2-wrapped module", UserWarning)

# Between the matrix products, each rank holds a part of every sequence.
_IN_PARTS = {"output_layouts": Shard(1)}
_WHOLE = {"input_layouts": Shard(1), "desired_input_layouts": Replicate()}


def plan_of_model() -> dict:
    embedding = RowwiseParallel(input_layouts=Replicate(), **_IN_PARTS)
    return {"embed.tokens": embedding,
            "embed.places": embedding,
            "norm": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=Shard(1),
                                    output_layouts=Replicate())}


def plan_of_block() -> dict:
    return {"attention_norm": SequenceParallel(),
            "attention": PrepareModuleInput(**_WHOLE),
            "attention.query": ColwiseParallel(),
            "attention.key": ColwiseParallel(),
            "attention.value": ColwiseParallel(),
            "attention.out": RowwiseParallel(**_IN_PARTS),
            "feed_norm": SequenceParallel(),
            "feed": PrepareModuleInput(**_WHOLE),
            "feed.up": ColwiseParallel(),
            "feed.down": RowwiseParallel(**_IN_PARTS)}


def shard(model: language.Decoder, mesh: DeviceMesh) -> nn.Module:
    parallelize_module(model, mesh["tensor"], plan_of_model())
    for block in model.blocks:
        parallelize_module(block, mesh["tensor"], plan_of_block())
        fully_shard(block, mesh=mesh["data"])
    return fully_shard(model, mesh=mesh["data"])


def parse() -> argparse.Namespace:
    parser = language.parser(__doc__, steps=30)
    parser.add_argument("--tensor", type=int, default=2, metavar="RANKS",
                        help="how many split each matrix: 1, 2 or 4")
    return parser.parse_args()


def main() -> None:
    options = parse()
    with common.job(options) as (rank, size):
        if size % options.tensor:
            raise SystemExit(f"{size} ranks can't be parted into those of "
                             f"--tensor {options.tensor}")
        mesh = init_device_mesh("cpu",
                                (size // options.tensor, options.tensor),
                                mesh_dim_names=("data", "tensor"))
        # With this, DTensor takes the gradients' norm by one call, not two.
        mesh._flatten("all")
        data = mesh["data"]
        trainer = language.Trainer(
            shard(language.build_model(options.seed), mesh), options,
            language.Share(data.get_local_rank(), data.size(),
                           data.get_group()))
        title = f"mesh of {data.size()} x {options.tensor}"
        losses = trainer.run(range(options.steps), title)
        if rank == 0:
            alone = language.Trainer(language.build_model(options.seed),
                                     options)
            language.compare(losses, title, alone,
                             options.output / "tensor_parallel.png")


if __name__ == "__main__":
    main()
