#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Trains a Transformers language model by FSDP2, and checks it by one process.

    torchrun --nproc-per-node 2 fsdp2_language_model.py

The model, a small Llama, is made from a configuration, and learns the bytes of
the language reference that Python's pydoc ships. Rank 0 then trains the same
model on the same batches alone: the losses must agree.
"""

import argparse
import os

# Nothing is asked of a hub.
os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import (  # noqa: E402
    FSDPModule, MixedPrecisionPolicy, fully_shard)
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

import common  # noqa: E402
import language  # noqa: E402

# 8 bits of mantissa against 24, after a hundred steps.
TOLERANCE_BF16 = 0.1


def build_model(seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=language.VOCABULARY, hidden_size=128,
        intermediate_size=352, num_hidden_layers=4, num_attention_heads=4,
        max_position_embeddings=language.CONTEXT))


def shard(model: LlamaForCausalLM,
          options: argparse.Namespace) -> LlamaForCausalLM:
    """Each layer is gathered just before it's used."""
    precision = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16) if options.bf16 else MixedPrecisionPolicy()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in [*model.model.layers, model]:
        fully_shard(layer, mesh=mesh, mp_policy=precision)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_allocate_memory_from_process_group_for_comm(
                options.registered)
    return model


def logits(model: LlamaForCausalLM, tokens: torch.Tensor) -> torch.Tensor:
    return model(tokens, use_cache=False).logits


def parse() -> argparse.Namespace:
    parser = language.parser(__doc__, steps=80)
    parser.add_argument("--bf16", action="store_true",
                        help="computes in bfloat16; weights stay float32")
    parser.add_argument("--registered", default=True,
                        action=argparse.BooleanOptionalAction,
                        help="has FSDP2 take its buffers from the backend, "
                        "which then moves them without a copy")
    return parser.parse_args()


def main() -> None:
    options = parse()
    with common.job(options) as (rank, size):
        trainer = language.Trainer(
            shard(build_model(options.seed), options), options,
            language.Share(rank, size), logits)
        losses = trainer.run(range(options.steps), f"FSDP2, {size} ranks")
        if rank == 0:
            alone = language.Trainer(build_model(options.seed), options,
                                     logits=logits)
            language.compare(
                losses, f"FSDP2, {size} ranks", alone,
                options.output / "fsdp2_language_model.png",
                TOLERANCE_BF16 if options.bf16 else language.TOLERANCE)


if __name__ == "__main__":
    main()
