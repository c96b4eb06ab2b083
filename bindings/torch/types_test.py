#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Every type and operator: what each pair gives, and which are refused."""

import testing  # First: it chooses the Python.

import time

import torch
import torch.distributed as dist
from torch.distributed import _make_nccl_premul_sum

from operations import (OPERATIONS, OPERATORS, REDUCTIONS, Case, finish,
                        has_meaning)
from testing import check_equal, check_refused, total, values

_INTEGERS = [t for t in testing.REDUCED
             if not (t.is_floating_point or t.is_complex)]


def every_type_travels(rank, size):
    number = 0
    for name, operation in OPERATIONS.items():
        if name in REDUCTIONS:
            continue
        for dtype in (*testing.MOVED, torch.float8_e8m0fnu):
            for rows in ((), (2, 0, 5)[:size]):
                number += 1
                finish(operation(Case(
                    rank, tuple(range(size)), dtype=dtype, shape=(3, 5),
                    rows=rows, number=number, root=number % size,
                    layout=("dense", "strided")[number % 2],
                    asynchronous=number % 3 == 0)))


def every_pair_has_its_meaning_or_is_refused(rank, size):
    number = 0
    # Halves of complex numbers are float16 when c10d hands them on.
    types = set(testing.MOVED) - {torch.complex32}
    for name in REDUCTIONS:
        for dtype in sorted(types, key=str):
            for op in OPERATORS:
                number += 1
                case = Case(rank, tuple(range(size)), dtype=dtype, reduce=op,
                            number=number, root=number % size,
                            layout=("dense", "strided")[number % 2],
                            asynchronous=number % 3 == 0)
                if has_meaning(op, dtype):
                    finish(OPERATIONS[name](case))
                    continue
                began = time.monotonic()
                try:
                    finish(OPERATIONS[name](case))
                    raise AssertionError(f"not refused: {case}")
                except (ValueError, NotImplementedError):
                    pass
                assert time.monotonic() - began < 1, case


def complex_reaches_the_backend(rank, size):
    """c10d makes them real; other callers of the backend don't."""
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    for dtype in (torch.complex64, torch.complex128):
        tensor = values(rank, (9,), dtype)
        backend.allreduce([tensor]).wait()
        check_equal(tensor, total(size, (9,), dtype), "complex sum")
        for op in OPERATORS[2:]:
            check_refused(ValueError, lambda: backend.allreduce(
                [tensor], op).wait(), "complex")
    half = torch.empty(9, dtype=torch.complex32)
    check_refused(NotImplementedError, lambda: backend.allreduce([half]),
                  "can be moved, but not reduced")


def bools_are_bits(rank, size):
    odd = torch.tensor([0, 1, 2, 0x80, 0, 255], dtype=torch.uint8)
    for op, wanted in ((dist.ReduceOp.SUM, [1, 1, 1, 1, 0, 1]),
                       (dist.ReduceOp.MAX, [1, 1, 1, 1, 0, 1]),
                       (dist.ReduceOp.MIN, [0, 1, 1, 1, 0, 1]),
                       (dist.ReduceOp.PRODUCT, [0, 1, 1, 1, 0, 1])):
        stored = odd.clone()
        stored[0] = rank == 0
        dist.all_reduce(stored.view(torch.bool), op=op)
        assert stored.tolist() == wanted, (op, stored)
    mask = torch.zeros(7, dtype=torch.bool)
    mask[rank] = True
    found = torch.empty(size, 7, dtype=torch.bool)
    dist.all_gather_into_tensor(found, mask)
    assert found.view(torch.uint8).sum() == size and found[rank, rank]


def extremes_are_kept(rank, size):
    for dtype in _INTEGERS:
        info = torch.iinfo(dtype)
        ends = torch.tensor([info.max - rank, info.min + rank, info.max],
                            dtype=dtype)
        for op, wanted in ((dist.ReduceOp.MAX, [info.max,
                                                info.min + size - 1]),
                           (dist.ReduceOp.MIN, [info.max - size + 1,
                                                info.min])):
            found = ends.clone()
            dist.all_reduce(found, op=op)
            assert found.tolist() == [*wanted, info.max], (dtype, op, found)
    special = torch.tensor([float("nan") if rank == size - 1 else 1.0,
                            float("-inf"), -0.0 if rank == 0 else 0.0])
    for op in (dist.ReduceOp.MIN, dist.ReduceOp.MAX):
        found = special.clone()
        dist.all_reduce(found, op=op)
        assert found[0].isnan() and found[1] == float("-inf"), found
        sign = -1 if op == dist.ReduceOp.MIN else 1
        assert torch.copysign(torch.ones(1), found[2]) == sign, found


def averages_truncate_and_are_exact(rank, size):
    groups = [(list(range(size)), None)]
    alone = [dist.new_group([r]) for r in range(size)][rank]
    groups.append(([rank], alone))
    for members, group in groups:
        for dtype in (*testing.REDUCED,):
            for count in (*range(1, 34), None):
                shape = () if count is None else (count,)
                case = Case(members.index(rank), tuple(members), group,
                            dtype=dtype, shape=shape, number=count or 0,
                            reduce=dist.ReduceOp.AVG)
                finish(OPERATIONS["all_reduce"](case))
    minus = torch.tensor([-1, -size - 1, size + 1], dtype=torch.int32)
    minus[0] = -1 if rank == 0 else 0
    dist.all_reduce(minus, op=dist.ReduceOp.AVG)
    assert minus.tolist() == [0, -size - 1, size + 1], minus


def premultiplied_sums_use_each_ranks_factor(rank, size):
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64,
                  torch.int32, torch.int64):
        for shape in [(n,) for n in range(0, 34)] + [(), (3, 70_000)]:
            factors = [2.0 * r - 3 for r in range(size)]
            made = factors[rank] if len(shape) % 2 else torch.tensor(
                [factors[rank]], dtype=dtype)
            small = [values(r, shape, dtype).to(torch.int64).remainder(
                17).to(dtype) for r in range(size)]
            tensor = small[rank].clone()
            dist.all_reduce(tensor, op=_make_nccl_premul_sum(made))
            # A sum of zeros may be -0.
            check_equal(tensor + 0, sum(f * testing.wide(t) for f, t in zip(
                factors, small)) + 0, f"premultiplied {dtype} {shape}")
    # Operators of calls under way are apart, whoever is ahead.
    tensors = [values(rank, (1000 * (i % 7) + 1,)) for i in range(60)]
    works = [dist.all_reduce(t, op=_make_nccl_premul_sum(2.0 ** (i % 5)),
                             async_op=True) for i, t in enumerate(tensors)]
    for i, (work, tensor) in enumerate(zip(works, tensors)):
        work.wait()
        check_equal(tensor, 2.0 ** (i % 5) * total(size, tensor.shape), i)


def gradients_are_divided_as_fsdp_does(rank, size):
    """The calls that it makes, by type and divide factor."""
    whole = [values(r, (size * 100,), torch.float16) / 64 for r in range(size)]
    mine = slice(rank * 100, rank * 100 + 100)
    exact = sum(w.double() for w in whole)[mine]
    part = torch.empty(100, dtype=torch.float16)
    dist.reduce_scatter_tensor(part, whole[rank] / size)
    torch.testing.assert_close(part.double(), exact / size, rtol=2e-3,
                               atol=1e-3)
    dist.reduce_scatter_tensor(part, whole[rank],
                               op=_make_nccl_premul_sum(1 / 4))
    check_equal(part, exact / 4, "premultiplied by the factor")
    for dtype in (torch.float32, torch.bfloat16):
        part = torch.empty(100, dtype=dtype)
        dist.reduce_scatter_tensor(part, whole[rank].to(dtype),
                                   op=dist.ReduceOp.AVG)
        exact = sum(w.to(dtype).float() for w in whole)[mine] / size
        check_equal(part, exact, "average")


def _bits_of_all_ranks(tensor, size):
    found = torch.empty(size, *tensor.shape, dtype=tensor.dtype)
    dist.all_gather_into_tensor(found, tensor)
    return found


def narrow_sums_round_once_and_alike(rank, size):
    for dtype in (torch.bfloat16, torch.float16):
        for count in (1, 1000, 100_000, 3_000_000):
            parts = [torch.randn(count, generator=torch.Generator().manual_seed(
                r)).to(dtype) for r in range(size)]
            exact = sum(p.double() for p in parts)
            first = None
            for _ in range(3):
                found = parts[rank].clone()
                dist.all_reduce(found)
                first = found if first is None else first
                assert torch.equal(found, first), "runs differ"
            for other in _bits_of_all_ranks(first, size):
                check_equal(other, first, "ranks differ")
            # Half a unit in the last place, and that of float32 sums.
            wide = sum(p.double().abs() for p in parts) * 2.0 ** -22
            allowed = exact.abs() * torch.finfo(dtype).eps / 2 + wide + (
                torch.finfo(dtype).smallest_normal)
            error = (first.double() - exact).abs()
            assert (error <= allowed).all(), (
                dtype, count, (error / allowed).max())
    # What overflows on the way, but not at the end, doesn't overflow.
    if size > 2:
        for count in (5, 1_000_000):
            found = torch.full((count,), -60000.0 if rank == 2 else 30000.0 if
                               rank else 60000.0, dtype=torch.float16)
            dist.all_reduce(found)
            check_equal(found, torch.full((count,), 30000.0), "near the end")


class Types(testing.RanksTest):

    def test_every_type_travels_and_every_pair_has_its_meaning(self):
        self.check(every_type_travels,
                   every_pair_has_its_meaning_or_is_refused, sizes=(3,))

    def test_results_are_those_of_the_written_rules(self):
        self.check(complex_reaches_the_backend, bools_are_bits,
                   extremes_are_kept, averages_truncate_and_are_exact,
                   premultiplied_sums_use_each_ranks_factor,
                   gradients_are_divided_as_fsdp_does,
                   narrow_sums_round_once_and_alike, sizes=(2, 3))


if __name__ == "__main__":
    testing.main()
