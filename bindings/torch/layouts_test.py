#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Tensors as users have them: of any layout, shape and kind."""

import testing  # First: it chooses the Python.

import random

import torch
import torch.distributed as dist

from operations import EXPANDED, LAYOUTS, NEGATED, OPERATIONS, Case, finish
from testing import check_equal, check_refused, total, values


def every_operation_takes_every_layout(rank, size):
    number = 0
    for operation in OPERATIONS.values():
        for layout in (*LAYOUTS, EXPANDED, NEGATED):
            for shape in ((4, 6), (2, 3, 4, 5), (7,), (), (0,), (1, 0, 2)):
                for asynchronous in (False, True):
                    number += 1
                    finish(operation(Case(
                        rank, tuple(range(size)), shape=shape, layout=layout,
                        asynchronous=asynchronous, number=number,
                        root=number % size)))


def _backend():
    return dist.group.WORLD._get_backend(torch.device("cpu"))


def lazy_elements_are_resolved(rank, size):
    """What c10d's Python and dispatcher leave of conjugated and negated views.

    Lists of lists, and calls of the backend itself.
    """
    def negated(shape):
        return torch.full(shape, 9, dtype=torch.complex64).conj().imag

    outputs = [negated((3, 2)) for _ in range(size)]
    assert outputs[0].is_neg()
    dist.all_gather(outputs, values(rank, (3, 2)))
    for r, output in enumerate(outputs):
        check_equal(output, values(r, (3, 2)), "all_gather to negated views")
    for view in (torch.empty(5, dtype=torch.complex64).conj(), negated((5,))):
        shape, dtype = view.shape, view.dtype
        view.copy_(values(rank, shape, dtype))
        _backend().allreduce([view]).wait()
        check_equal(view, total(size, shape, dtype), "sum of lazy views")
        gathered = torch.empty(size * 5, dtype=dtype)
        view.copy_(values(rank, shape, dtype))
        _backend()._allgather_base(gathered, view).wait()
        check_equal(gathered, torch.cat([values(r, shape, dtype) for r in
                                         range(size)]), "gathered lazy views")


def calls_in_place_are_right(rank, size):
    mine, everyone = values(rank, (5,)), [values(r, (5,)) for r in range(size)]
    flat = torch.zeros(size * 5)
    part = flat[rank * 5:rank * 5 + 5]
    for asynchronous in (False, True):
        part.copy_(mine)
        work = dist.all_gather_into_tensor(flat, part, async_op=asynchronous)
        if asynchronous:
            work.wait()
        check_equal(flat, torch.cat(everyone), "all_gather in place")
        for lists in (list(flat.chunk(size)), [torch.zeros(5) for _ in
                                               range(size)]):
            lists[rank].copy_(mine)
            dist.all_gather(lists, lists[rank])
            check_equal(torch.cat(lists), torch.cat(everyone), "list in place")
            lists[rank].copy_(mine)
            dist.gather(lists[rank], lists if rank == 1 else None, dst=1)
            check_equal(torch.cat(lists), torch.cat(everyone), "gather")
            dist.scatter(lists[rank], lists if rank == 1 else None, src=1)
            check_equal(lists[rank], mine, "scatter in place")
        flat.copy_(values(rank, (size * 5,)))
        dist.reduce_scatter_tensor(part, flat)
        check_equal(part, total(size, (size * 5,))[rank * 5:rank * 5 + 5],
                    "reduce_scatter in place")


def aliased_tensors_are_right_or_refused(rank, size):
    """Views that overlap: copied if they must be copied anyhow."""
    buffer = torch.zeros(size * 4 * 2)
    buffer[2:6].copy_(values(rank, (4,)))
    wanted = torch.cat([values(r, (4,)) for r in range(size)])
    check_refused(ValueError, lambda: dist.all_gather_into_tensor(
        buffer[:size * 4], buffer[2:6]), "overlap")
    dist.all_gather_into_tensor(buffer[::2], buffer[2:6])
    check_equal(buffer[::2], wanted, "strided output over its input")
    mine = values(rank, (size * 2,))
    check_refused(ValueError, lambda: dist.all_to_all_single(mine, mine),
                  "overlap")
    check_equal(mine, values(rank, (size * 2,)), "after the refusal")
    same = torch.empty(4)
    check_refused(ValueError, lambda: dist.all_gather([same] * size, same),
                  "share memory")


def _random_view(buffer, choice):
    shape = [choice.randrange(1, 4) for _ in range(choice.randrange(1, 4))]
    strides = [choice.randrange(0, 7) for _ in shape]
    return buffer.as_strided(shape, strides, choice.randrange(0, 9))


def _addresses(view):
    return torch.arange(64).as_strided(
        view.shape, view.stride(), view.storage_offset()).flatten().tolist()


def views_that_share_memory_are_refused(rank, size):
    """Exactly those: compared with every element's address."""
    choice, refused = random.Random(5), 0
    for trial in range(600):
        buffer = torch.full((64,), 0.25)
        view = _random_view(buffer, choice)
        addresses = _addresses(view)
        if len(set(addresses)) < len(addresses):
            check_refused(ValueError, lambda: dist.all_reduce(view),
                          "share memory")
            refused += 1
            continue
        others = [_random_view(buffer, choice) for _ in range(size - 1)]
        if any(len(set(_addresses(v))) < v.numel() for v in others):
            continue
        everything = [a for v in [view, *others] for a in _addresses(v)]
        outputs = [view, *others]
        mine = values(trial + rank, outputs[rank].shape)
        if len(set(everything)) < len(everything):
            check_refused(ValueError, lambda: dist.all_gather(outputs, mine),
                          "share memory")
            refused += 1
            continue
        dist.all_gather(outputs, mine)
        for r, output in enumerate(outputs):
            check_equal(output, values(trial + r, output.shape), trial)
        assert (buffer == 0.25).sum() == 64 - len(everything), trial
    assert 100 < refused < 500, refused


def kinds_that_cannot_be_sent_are_refused(rank, size):
    ones = torch.ones(4)
    quantized = torch.quantize_per_tensor(ones, 0.1, 0, torch.quint8)
    nested = torch.nested.nested_tensor([ones, ones[:2]])
    meta = torch.ones(4, device="meta")
    zeros = torch._efficientzerotensor(4)
    for tensor, word in ((ones.to_sparse(), "Sparse"), (nested, "Jagged"),
                         (ones.to_mkldnn(), "Mkldnn"), (quantized, "int_repr"),
                         (meta, "meta"), (zeros, "clone")):
        check_refused(ValueError, lambda: _backend().broadcast(
            [tensor], _broadcast_from((rank + 1) % size)), word)
        check_refused((ValueError, NotImplementedError),
                      lambda: dist.all_gather([tensor] * size, ones))
    found = torch.full((4,), 3.0)
    dist.broadcast(zeros if rank == 0 else found, src=0)
    assert rank == 0 or not found.any(), found


def _broadcast_from(root):
    options = dist.BroadcastOptions()
    options.rootRank, options.rootTensor = root, 0
    return options


def leaves_and_inference_tensors_are_written(rank, size):
    weight = values(rank, (4, 6)).t().requires_grad_()
    dist.all_reduce(weight)
    assert weight.is_leaf and weight.requires_grad and weight.grad is None
    check_equal(weight, total(size, (4, 6)).t(), "a leaf")
    with torch.inference_mode():
        tensors = [values(rank, (4, 6)).t() for _ in range(8)]
        works = [dist.all_reduce(t, async_op=True) for t in tensors]
    works.append(dist.all_reduce(weight, async_op=True))
    for work in works:
        work.wait()
    for tensor in tensors:
        assert tensor.is_inference()
        check_equal(tensor, total(size, (4, 6)).t(), "of inference mode")


class Layouts(testing.RanksTest):

    def test_every_operation_takes_every_layout(self):
        self.check(every_operation_takes_every_layout, sizes=(3,))

    def test_views_share_memory_rightly_or_are_refused(self):
        self.check(lazy_elements_are_resolved, calls_in_place_are_right,
                   aliased_tensors_are_right_or_refused,
                   views_that_share_memory_are_refused,
                   kinds_that_cannot_be_sent_are_refused,
                   leaves_and_inference_tensors_are_written, sizes=(2, 3))


if __name__ == "__main__":
    testing.main()
