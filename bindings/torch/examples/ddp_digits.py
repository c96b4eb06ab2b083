#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Trains a classifier of handwritten digits by DistributedDataParallel.

    torchrun --nproc-per-node 2 ddp_digits.py

The 1,797 images of 8 x 8 pixels come with scikit-learn. It must get at least
95 % of the fifth that it has never seen.
"""

import argparse

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import common

WANTED = 0.95


def build_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10))


def load(seed: int) -> tuple[TensorDataset, TensorDataset]:
    """What to learn from, and what to be tested on: the same on all ranks."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    labels = torch.tensor(digits.target)
    learn, test = train_test_split(range(len(labels)), test_size=0.2,
                                   stratify=labels, random_state=seed)
    return (TensorDataset(images[learn], labels[learn]),
            TensorDataset(images[test], labels[test]))


class Classifier:
    """The model, and what it's trained with."""

    def __init__(self, learn: TensorDataset,
                 options: argparse.Namespace) -> None:
        self.sampler = DistributedSampler(learn, seed=options.seed)
        self.loader = DataLoader(
            learn, sampler=self.sampler,
            batch_size=max(1, options.batch // dist.get_world_size()))
        self.model = DistributedDataParallel(build_model())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)

    def step(self, number: int) -> float:
        """Returns the loss, the mean of all ranks'."""
        if number % len(self.loader) == 0:
            self.sampler.set_epoch(number // len(self.loader))
            self.batches = iter(self.loader)
        images, labels = next(self.batches)
        self.optimizer.zero_grad()
        loss = functional.cross_entropy(self.model(images), labels)
        loss.backward()
        self.optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        return mean.item()

    @torch.no_grad()
    def accuracy(self, test: TensorDataset) -> float:
        """Each rank looks at every size-th image."""
        rank, size = dist.get_rank(), dist.get_world_size()
        images, labels = test[rank::size]
        # DDP's own forward is for training: ranks' shares may differ.
        found = self.model.module(images).argmax(1)
        right = (found == labels).sum()
        dist.all_reduce(right)
        return right.item() / len(test)


def main() -> None:
    parser = common.parser(__doc__, steps=300)
    parser.add_argument("--batch", type=int, default=64,
                        help="images a step, of all ranks together")
    options = parser.parse_args()
    with common.job(options) as (rank, size):
        learn, test = load(options.seed)
        classifier = Classifier(learn, options)
        losses = common.run(classifier.step, range(options.steps),
                            f"DDP, {size} ranks")
        accuracy = classifier.accuracy(test)
        if rank == 0:
            common.plot(options.output / "ddp_digits.png",
                        {f"DDP, {size} ranks": losses})
            common.check(accuracy >= WANTED,
                         f"{accuracy:.1%} of {len(test)} unseen digits "
                         f"(wanted: {WANTED:.0%})")


if __name__ == "__main__":
    main()
