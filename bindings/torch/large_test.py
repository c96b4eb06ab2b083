#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Tensors of more than 2^31 bytes: no count or offset is of 32 bits."""

import testing  # First: it chooses the Python.


import torch
import torch.distributed as dist

# 2.2 GiB, not a multiple of what calls are cut by.
_COUNT = (11 << 30) // 5 + 12345
_PERIOD = 251  # of the values, prime to all sizes of pieces


def _fill(tensor, rank):
    """Values by rank and position, made without as much memory again."""
    pattern = (torch.arange(_PERIOD) * 3 + rank * 7) % 61
    whole = tensor.numel() // _PERIOD * _PERIOD
    tensor[:whole].view(-1, _PERIOD).copy_(pattern)
    tensor[whole:].copy_(pattern[:tensor.numel() - whole])


def _check(tensor, ranks, what):
    """All elements, a piece at a time."""
    pattern = sum((torch.arange(_PERIOD) * 3 + r * 7) % 61 for r in ranks).to(
        tensor.dtype)
    whole = tensor.numel() // _PERIOD * _PERIOD
    for rows in tensor[:whole].view(-1, _PERIOD).split(1 << 18):
        assert (rows == pattern).all(), what
    assert (tensor[whole:] == pattern[:tensor.numel() - whole]).all(), what


def sums_and_copies(rank, size):
    tensor = torch.empty(_COUNT, dtype=torch.int8)
    _fill(tensor, rank)
    dist.all_reduce(tensor)
    _check(tensor, range(size), "all_reduce")
    _fill(tensor, rank)
    dist.broadcast(tensor, src=1)
    _check(tensor, [1], "broadcast")
    _fill(tensor, rank)
    if rank == 0:
        dist.send(tensor, 1)
    else:
        dist.recv(tensor, 0)
        _check(tensor, [0], "recv")


def parts(rank, size):
    """Offsets above 2^31 within the whole, even and uneven."""
    flat = torch.empty(_COUNT // size * size, dtype=torch.int8)
    mine = flat.chunk(size)[rank]
    _fill(mine, rank)
    dist.all_gather_into_tensor(flat, mine)
    for r, part in enumerate(flat.chunk(size)):
        _check(part, [r], "all_gather")
    _fill(flat, rank)
    dist.reduce_scatter_tensor(mine, flat)
    total = sum((torch.arange(_PERIOD) * 3 + r * 7) % 61 for r in range(size))
    first = rank * len(mine) % _PERIOD
    assert (mine[:_PERIOD] == total.roll(-first)).all(), "reduce_scatter"
    assert (mine[-_PERIOD:] == total.roll(
        -(first + len(mine)) % _PERIOD)).all(), "reduce_scatter's end"
    splits = [_COUNT // size * size - 77, 77]
    lists = list(flat.split(splits))
    _fill(lists[rank], rank)
    dist.all_gather(lists, lists[rank].clone())
    for r, part in enumerate(lists):
        _check(part, [r], "uneven all_gather")


class Large(testing.RanksTest):

    def test_counts_and_offsets_are_of_64_bits(self):
        self.check(sums_and_copies, parts)


if __name__ == "__main__":
    testing.main()
