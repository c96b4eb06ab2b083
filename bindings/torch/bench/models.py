# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Small models to train, with data that's made up: each rank has its own."""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor, nn

_WIDTH, _LAYERS = 512, 6
_CLASSES, _IMAGES = 10, 64
_WORDS, _MODEL, _HEADS, _BLOCKS = 512, 256, 4, 4
_TEXTS, _LENGTH = 4, 64


@dataclasses.dataclass(frozen=True)
class Task:
    """What a step of training needs; `layers` are what FSDP2 shards by."""
    model: nn.Module
    layers: list[nn.Module]
    loss: Callable[[nn.Module], Tensor]


def classifier(rank: int) -> Task:
    """A perceptron over images of 8 x 8 pixels; 5 MB of parameters."""
    torch.manual_seed(0)
    hidden = [nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.ReLU())
              for _ in range(_LAYERS - 1)]
    model = nn.Sequential(nn.Linear(64, _WIDTH), *hidden,
                          nn.Linear(_WIDTH, _CLASSES))
    torch.manual_seed(rank + 1)
    images = torch.rand(_IMAGES, 64)
    labels = torch.randint(_CLASSES, (_IMAGES,))
    return Task(model, list(model), lambda wrapped:
                nn.functional.cross_entropy(wrapped(images), labels))


class _LanguageModel(nn.Module):
    """A causal transformer over made-up words; gives the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(_WORDS, _MODEL)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(_MODEL, _HEADS, 4 * _MODEL, dropout=0,
                                       batch_first=True, norm_first=True)
            for _ in range(_BLOCKS))
        self.head = nn.Linear(_MODEL, _WORDS)

    def forward(self, text: Tensor) -> Tensor:
        state = self.words(text[:, :-1])
        mask = nn.Transformer.generate_square_subsequent_mask(state.shape[1])
        for block in self.blocks:
            state = block(state, src_mask=mask, is_causal=True)
        return nn.functional.cross_entropy(self.head(state).flatten(0, 1),
                                           text[:, 1:].flatten())


def language_model(rank: int) -> Task:
    """4 blocks of a transformer; 14 MB of parameters."""
    torch.manual_seed(0)
    model = _LanguageModel()
    torch.manual_seed(rank + 1)
    text = torch.randint(_WORDS, (_TEXTS, _LENGTH + 1))
    return Task(model, list(model.blocks), lambda wrapped: wrapped(text))
