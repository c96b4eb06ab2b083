# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""The collectives that are measured: one table, a row each."""

import dataclasses
import functools
from collections.abc import Callable

import patterns
import torch
import torch.distributed as dist
from torch import Tensor

Call = Callable[[], object]

ROOT = 0


@dataclasses.dataclass(frozen=True)
class Shape:
    """What differs from row to row; `elements` are the larger buffer's."""
    rank: int
    ranks: int
    elements: int
    dtype: torch.dtype

    @property
    def part(self) -> int:
        """Elements of each rank's part, where a buffer is divided."""
        return self.elements // self.ranks

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.itemsize


class Buffers:
    """A rank's input and output; the same where a call works in place."""

    def __init__(self, collective: "Collective", shape: Shape):
        def make(divided: bool) -> Tensor:
            return torch.empty(shape.part if divided else shape.elements,
                               dtype=shape.dtype)
        self.shape = shape
        self.tables = [patterns.table(rank, shape.ranks, shape.dtype)
                       for rank in range(shape.ranks)]
        self.input = make(collective.input_divided)
        self.output = self.input if collective.in_place else \
            make(collective.output_divided)

    def refill(self) -> None:
        """As before any call: no earlier result can pass for a later one."""
        if self.output is not self.input:
            self.output.zero_()
        patterns.fill(self.input, self.tables[self.shape.rank])


@dataclasses.dataclass(frozen=True)
class Collective:
    """A call of torch.distributed, and what its result must be."""
    name: str
    # A call as it's timed, with as little of Python around it as can be.
    call: Callable[[Buffers, dist.ProcessGroup], Call]
    # Wrong elements of a rank's output.
    wrong: Callable[[Buffers], int]
    # By the number of ranks: bytes that a wire carries : bytes.
    bus_factor: Callable[[int], float]
    in_place: bool = False
    input_divided: bool = False   # it's one rank's part of the larger buffer
    output_divided: bool = False

    def elements(self, size: int, ranks: int, dtype: torch.dtype) -> int:
        """Of the larger buffer, for at most `size` bytes of it."""
        count = size // dtype.itemsize
        return count if self.in_place else count // ranks * ranks


def _wrong_sum(buffers: Buffers) -> int:
    return patterns.count_wrong(buffers.output, sum(buffers.tables))


def _wrong_part(buffers: Buffers) -> int:
    shape = buffers.shape
    return patterns.count_wrong(buffers.output, sum(buffers.tables),
                                shape.rank * shape.part)


def _wrong_copy(buffers: Buffers) -> int:
    return patterns.count_wrong(buffers.output, buffers.tables[ROOT])


def _wrong_blocks(buffers: Buffers, first: int = 0) -> int:
    """Of a block of each rank, which was its `first` elements and on."""
    return sum(patterns.count_wrong(block, table, first) for block, table in
               zip(buffers.output.split(buffers.shape.part), buffers.tables))


def _wrong_exchange(buffers: Buffers) -> int:
    return _wrong_blocks(buffers, buffers.shape.rank * buffers.shape.part)


def _share(ranks: int) -> float:
    return (ranks - 1) / ranks


COLLECTIVES = (
    Collective(
        "all_reduce", in_place=True,
        call=lambda buffers, group: functools.partial(
            dist.all_reduce, buffers.output, group=group),
        wrong=_wrong_sum, bus_factor=lambda ranks: 2 * _share(ranks)),
    Collective(
        "all_gather_into_tensor", input_divided=True,
        call=lambda buffers, group: functools.partial(
            dist.all_gather_into_tensor, buffers.output, buffers.input,
            group=group),
        wrong=_wrong_blocks, bus_factor=_share),
    Collective(
        "reduce_scatter_tensor", output_divided=True,
        call=lambda buffers, group: functools.partial(
            dist.reduce_scatter_tensor, buffers.output, buffers.input,
            group=group),
        wrong=_wrong_part, bus_factor=_share),
    Collective(
        "broadcast", in_place=True,
        call=lambda buffers, group: functools.partial(
            dist.broadcast, buffers.output, ROOT, group=group),
        wrong=_wrong_copy, bus_factor=lambda _: 1),
    Collective(
        "all_to_all_single",
        call=lambda buffers, group: functools.partial(
            dist.all_to_all_single, buffers.output, buffers.input,
            group=group),
        wrong=_wrong_exchange, bus_factor=_share),
)

# It has no data, so it's no row of the table.
BARRIER = "barrier"
