#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""All-to-alls, which PyTorch's own suite leaves to other backends."""

import testing  # First: it chooses the Python.


import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable

from operations import LAYOUTS, OPERATIONS, Case, finish
from testing import check_equal, check_refused, values

_TYPES = (torch.float32, torch.complex64, torch.bfloat16, torch.int64,
          torch.bool)


def _groups(size):
    """As c10d makes them: the world, all of it again, some, each alone."""
    yield tuple(range(size)), None
    some = [tuple(range(size)), (size - 1, 0)] + [(r,) for r in range(size)]
    if size > 3:
        some.append((2, 3, 0))
    for members in some:
        yield members, dist.new_group(list(members), sort_ranks=False)


def every_split_type_and_group(rank, size):
    for members, group in _groups(size):
        if rank not in members:
            continue
        number = 0
        rows = [tuple((i * 3 + 1) % 4 for i in range(len(members))),
                (0,) * len(members), ()]
        for name in ("all_to_all", "all_to_all_single"):
            for dtype in _TYPES:
                for split in rows:
                    number += 1
                    finish(OPERATIONS[name](Case(
                        members.index(rank), members, group, dtype=dtype,
                        shape=(2, 3), rows=split, number=number,
                        asynchronous=number % 2 == 0,
                        layout=LAYOUTS[number % len(LAYOUTS)])))


def splits_as_the_suite_has_them(rank, size):
    """Rank i sends d + 1 rows to rank d, of as many columns as ranks."""
    for dtype in (torch.float32, torch.complex64):
        sent = [values(rank * 8 + d, (d + 1, size), dtype)
                for d in range(size)]
        wanted = [values(s * 8 + rank, (rank + 1, size), dtype)
                  for s in range(size)]
        found = [torch.empty(rank + 1, size, dtype=dtype) for _ in wanted]
        dist.all_to_all(found, sent)
        for s in range(size):
            check_equal(found[s], wanted[s], s)
        flat = torch.empty(size * (rank + 1), size, dtype=dtype)
        splits = [rank + 1] * size, [d + 1 for d in range(size)]
        dist.all_to_all_single(flat, torch.cat(sent), *splits)
        check_equal(flat, torch.cat(wanted), "single")
        # Splits that are even needn't be given by both sides.
        even = values(rank, (size * 2, 3), dtype)
        flat = torch.empty_like(even)
        dist.all_to_all_single(flat, even, [2] * size, None)
        check_equal(flat, torch.cat([
            values(s, (size * 2, 3), dtype)[rank * 2:rank * 2 + 2]
            for s in range(size)]), "splits of one side")


def one_rank_may_send_everything(rank, size):
    """And some pairs nothing; also more than one piece of a message."""
    for count in (0, 1, 70_000):
        sent = values(rank, (count if rank == 0 else 0, 5))
        inputs = [count if rank == 0 and d == size - 1 else 0
                  for d in range(size)]
        outputs = [count if rank == size - 1 and s == 0 else 0
                   for s in range(size)]
        found = torch.full((sum(outputs), 5), -1.0)
        dist.all_to_all_single(found, sent, outputs, inputs)
        if rank == size - 1:
            check_equal(found, values(0, (count, 5)), count)
    # Parts of other shapes, in a list.
    found = [torch.empty(s + 1, rank + 1) for s in range(size)]
    dist.all_to_all(found, [values(rank * 8 + d, (rank + 1, d + 1))
                            for d in range(size)])
    for s in range(size):
        check_equal(found[s], values(s * 8 + rank, (s + 1, rank + 1)), s)


def bad_splits_are_refused(rank, size):
    rows = torch.ones(size * 2, 3)
    out = torch.zeros_like(rows)
    for outputs, inputs, words in (
            ([2] * size, [1] * size, ("split sizes", f" {size * 2}")),
            ([2] * size, [2] * (size + 1), ("split sizes",)),
            ([2] * size, [-2, 6] + [2] * (size - 2), ("split sizes",)),
            ([2] * (size - 1), [2] * size, ("split sizes",))):
        check_refused(ValueError, lambda: dist.all_to_all_single(
            out, rows, outputs, inputs), *words)
    check_refused(ValueError, lambda: dist.all_to_all_single(
        out[:3], rows[:3]), "multiple") if size == 2 else None
    check_refused(ValueError, lambda: dist.all_to_all_single(
        out[:size], rows), "as many elements")
    check_refused(ValueError, lambda: dist.all_to_all_single(
        out.double(), rows), "float64", "float32")
    check_refused(ValueError, lambda: dist.all_to_all(
        [out] * (size + 1), [rows] * size), str(size + 1))
    check_refused((ValueError, NotImplementedError),
                  lambda: dist.all_to_all([], []))
    assert not out.any()
    if rank == 0:
        check_refused(ValueError, lambda: dist.all_to_all_single(
            out, rows, [1] * size, [2] * size))


def functions_and_gradients_use_it(rank, size):
    mine = values(rank, (size * 2, 3))
    columns = [values(s, (size * 2, 3))[rank * 2:rank * 2 + 2]
               for s in range(size)]
    found = functional.all_to_all_single(mine, None, None,
                                         dist.group.WORLD)
    check_equal(found, torch.cat(columns), "functional")
    weight = mine.clone().requires_grad_()
    output = torch.empty_like(mine)
    result = differentiable.all_to_all_single(output, weight)
    check_equal(result.detach(), torch.cat(columns), "differentiable")
    (result * (rank + 1)).sum().backward()
    check_equal(weight.grad, torch.arange(1., size + 1).repeat_interleave(
        2)[:, None].expand(size * 2, 3), "gradient")


class AllToAll(testing.RanksTest):

    def test_exchanges_every_split_and_type_in_every_group(self):
        self.check(every_split_type_and_group, splits_as_the_suite_has_them,
                   one_rank_may_send_everything, bad_splits_are_refused,
                   functions_and_gradients_use_it, sizes=(2, 4))


if __name__ == "__main__":
    testing.main()
