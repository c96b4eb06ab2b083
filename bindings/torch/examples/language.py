# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""A language to learn, a small model of it, and the loop that trains one.

The text is what Python's own `pydoc` ships: chapters of the language reference.
A token is a byte.
"""

import argparse
import collections
import dataclasses
import pathlib
from collections.abc import Callable, Iterable
from pydoc_data.topics import topics

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

import common

VOCABULARY = 256
CONTEXT = 64
LEARNING_RATE = 1e-3
# How far the losses of two ways to train may lie apart.
TOLERANCE = 1e-3


def parser(description: str, steps: int) -> argparse.ArgumentParser:
    """The options of all examples, and the batch."""
    made = common.parser(description, steps)
    made.add_argument("--batch", type=int, default=16,
                      help="sequences a step, of all ranks together "
                      "(default %(default)s)")
    return made


class Text:
    """Batches of the text, each a function of its step and the seed alone."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._text = torch.frombuffer(
            bytearray("\n".join(topics.values()).encode()), dtype=torch.uint8)
        self._seed = options.seed
        self._batch = options.batch

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens to see, CONTEXT a sequence, and those that follow each."""
        chance = torch.Generator().manual_seed(self._seed * 1_000_003 + step)
        begins = torch.randint(len(self._text) - CONTEXT, (self._batch, 1),
                               generator=chance)
        tokens = self._text[begins + torch.arange(CONTEXT + 1)].long()
        return tokens[:, :-1], tokens[:, 1:]


class Embedding(nn.Module):
    """Of each token and its place."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.places = nn.Embedding(CONTEXT, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1]).expand_as(tokens)
        return self.tokens(tokens) + self.places(places)


class Attention(nn.Module):
    """Each place looks at those before it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.head_width = width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        # As many heads as this rank holds.
        query, key, value = (
            part(hidden).unflatten(-1, (-1, self.head_width)).transpose(1, 2)
            for part in (self.query, self.key, self.value))
        seen = functional.scaled_dot_product_attention(query, key, value,
                                                       is_causal=True)
        return self.out(seen.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and a feed-forward layer, each added to what came in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.feed_norm = nn.LayerNorm(width)
        self.feed = nn.Sequential(collections.OrderedDict(
            up=nn.Linear(width, 4 * width), gelu=nn.GELU(),
            down=nn.Linear(4 * width, width)))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden))
        return hidden + self.feed(self.feed_norm(hidden))


class Decoder(nn.Module):
    """A causal language model of bytes."""

    def __init__(self, layers: int = 4, width: int = 128,
                 heads: int = 4) -> None:
        super().__init__()
        self.embed = Embedding(width)
        self.blocks = nn.Sequential(*(Block(width, heads)
                                      for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.embed(tokens))))


def build_model(seed: int) -> Decoder:
    torch.manual_seed(seed)
    return Decoder()


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.flatten(0, 1).float(),
                                    targets.flatten())


@dataclasses.dataclass
class Share:
    """Which part of each batch a process trains on."""
    rank: int = 0
    size: int = 1
    group: dist.ProcessGroup | None = None

    def of(self, batch: torch.Tensor) -> torch.Tensor:
        return batch.tensor_split(self.size)[self.rank]

    def mean(self, value: torch.Tensor) -> torch.Tensor:
        if self.size > 1:
            dist.all_reduce(value, dist.ReduceOp.AVG, group=self.group)
        return value


ALONE = Share()


class Trainer:
    """Trains a model, whose wrapper takes the mean of ranks' gradients."""

    def __init__(self, model: nn.Module, options: argparse.Namespace,
                 share: Share = ALONE,
                 logits: Callable[..., torch.Tensor] = nn.Module.__call__
                 ) -> None:
        if options.batch < share.size:
            raise SystemExit(f"--batch {options.batch} leaves some of "
                             f"{share.size} ranks without a sequence")
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(),
                                           lr=LEARNING_RATE)
        self._text = Text(options)
        self._share = share
        self._logits = logits

    def step(self, number: int) -> float:
        """Returns the loss of the whole batch."""
        tokens, targets = self._text.batch(number)
        mine = self._share.of(tokens)
        self.optimizer.zero_grad()
        loss = loss_of(self._logits(self.model, mine),
                       self._share.of(targets))
        # Shares of different length count by their length.
        loss = loss * (len(mine) * self._share.size / len(tokens))
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return self._share.mean(loss.detach()).item()

    def run(self, steps: Iterable[int], title: str) -> list[float]:
        """Returns each step's loss."""
        return common.run(self.step, steps, title)


def compare(losses: list[float], label: str, alone: Trainer,
            plot: pathlib.Path, tolerance: float = TOLERANCE) -> None:
    """On rank 0: trains the same model alone, and wants the same losses."""
    wanted = alone.run(range(len(losses)), "one process")
    common.plot(plot, {label: losses, "one process": wanted})
    common.check_curves(losses, wanted, tolerance)
