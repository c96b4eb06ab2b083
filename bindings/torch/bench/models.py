# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""The models of bindings/torch/examples, and a batch for each rank."""

import argparse
import dataclasses
from collections.abc import Callable

import ddp_digits
import fsdp2_language_model
import language
from torch import Tensor, nn
from torch.nn import functional

_SEED = 1
_IMAGES = 32
_SEQUENCES = 8


@dataclasses.dataclass(frozen=True)
class Task:
    """What a step of training needs; `layers` are what FSDP2 shards by."""
    model: nn.Module
    layers: list[nn.Module]
    # Of the model, or of what wraps it.
    loss: Callable[[nn.Module], Tensor]


def classifier(rank: int) -> Task:
    model = ddp_digits.build_model()
    learn, _ = ddp_digits.load(_SEED)
    images, labels = learn[rank * _IMAGES:(rank + 1) * _IMAGES]
    return Task(model, list(model), lambda wrapped:
                functional.cross_entropy(wrapped(images), labels))


def language_model(rank: int) -> Task:
    model = fsdp2_language_model.build_model(_SEED)
    text = language.Text(argparse.Namespace(seed=_SEED, batch=_SEQUENCES))
    tokens, targets = text.batch(rank)
    return Task(model, list(model.model.layers), lambda wrapped:
                language.loss_of(
                    fsdp2_language_model.logits(wrapped, tokens), targets))
