# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Data that shows which rank and position it's from, and its check.

Data repeats after a prime number of elements, so that no part of a buffer
looks like its neighbour, and filling and checking takes one pass. A table is
what repeats.
"""

import torch

PERIOD = 1021


def table(rank: int, ranks: int, dtype: torch.dtype) -> torch.Tensor:
    """A rank's numbers: whole, and sums over all ranks are exact."""
    exact = int(2 / torch.finfo(dtype).eps)
    random = torch.Generator().manual_seed(rank)
    most = max(1, min(exact, 1 << 16) // ranks)
    return torch.randint(1, most + 1, (PERIOD,), generator=random).to(dtype)


def fill(tensor: torch.Tensor, rows: torch.Tensor) -> None:
    """Repeats a table in a contiguous tensor."""
    whole, rest = _split(tensor)
    whole.copy_(rows)
    rest.copy_(rows[:rest.numel()])


def count_wrong(tensor: torch.Tensor, rows: torch.Tensor,
                first: int = 0) -> int:
    """How many elements differ from the table, begun at its `first` one."""
    rows = torch.roll(rows, -(first % PERIOD))
    whole, rest = _split(tensor)
    return int((whole != rows).sum() + (rest != rows[:rest.numel()]).sum())


def _split(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    flat = tensor.view(-1)
    whole = flat.numel() // PERIOD * PERIOD
    return flat[:whole].view(-1, PERIOD), flat[whole:]
