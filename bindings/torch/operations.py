# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Every operation of a group, with the check of all that it may touch.

An operation takes a Case, makes the call with tensors in the case's layout, and
compares the results with what follows from the known values of all ranks. What
lies between and around the elements, and all inputs, must be as before. It's a
generator, which yields where an asynchronous call is under way.

    case = Case(rank=1, members=(2, 0), group=group, layout="strided")
    finish(OPERATIONS["all_reduce"](case))
"""

import dataclasses
import math
import time

import torch
import torch.distributed as dist

import testing

# How tensors lie in memory; "graph" are those that autograd watches.
LAYOUTS = ("dense", "offset", "strided", "column", "transposed", "permuted",
           "channels_last", "graph")
# Of inputs alone: one row that's all rows, and elements that are yet to be
# negated. (As an output, PyTorch hands a copy of such to any backend.)
EXPANDED, NEGATED = "expanded", "negated"

_SUM, _AVG = dist.ReduceOp.SUM, dist.ReduceOp.AVG
OPERATORS = (_SUM, _AVG, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN,
             dist.ReduceOp.MAX, dist.ReduceOp.BAND, dist.ReduceOp.BOR,
             dist.ReduceOp.BXOR)
_BITS = {dist.ReduceOp.BAND: torch.bitwise_and,
         dist.ReduceOp.BOR: torch.bitwise_or,
         dist.ReduceOp.BXOR: torch.bitwise_xor}


def _buffer(shape, dtype):
    """Memory full of one pattern of bytes that no result is made of."""
    count = math.prod(shape)
    return torch.full((count * dtype.itemsize,), 0x5A,
                      dtype=torch.uint8).view(dtype).reshape(shape)


def _view(shape, dtype, layout):
    """A tensor of that layout; of the nearest where the shape has no such."""
    dims = len(shape)
    if layout == "offset":
        count = math.prod(shape)
        return _buffer((count + 5,), dtype)[3:3 + count].view(shape)
    if layout == "strided" and dims > 0:
        return _buffer((*shape[:-1], shape[-1] * 2), dtype)[..., ::2]
    if layout == "column" and dims > 0:
        width = shape[-1]
        return _buffer((*shape[:-1], width + 3), dtype)[..., 1:1 + width]
    if layout == "transposed" and dims > 1:
        return _buffer((*shape[:-2], shape[-1], shape[-2]), dtype).mT
    if layout == "permuted" and dims > 1:
        return _buffer(shape[::-1], dtype).permute(*range(dims)[::-1])
    if layout == "channels_last" and dims == 4:
        n, c, h, w = shape
        return _buffer((n, h, w, c), dtype).permute(0, 3, 1, 2)
    if layout == NEGATED and dtype in (torch.float32, torch.float64):
        return _buffer(shape, dtype.to_complex()).conj().imag
    return _buffer(shape, dtype)


def lay(tensor, layout):
    """The same elements in that layout."""
    if layout == EXPANDED:
        return tensor
    view = _view(tensor.shape, tensor.dtype, layout)
    view.copy_(tensor)
    if layout == "graph" and (tensor.is_floating_point() or
                              tensor.is_complex()):
        view.requires_grad_()
    return view


class _Surroundings:
    """The memory of a tensor's storage that isn't the tensor's."""

    def __init__(self, tensor):
        self._tensor = tensor.detach()
        self._before = self._without_tensor()

    def _without_tensor(self):
        tensor = self._tensor
        storage = tensor.untyped_storage().clone()
        torch.empty(0, dtype=tensor.dtype).set_(
            storage, tensor.storage_offset(), tensor.shape,
            tensor.stride()).zero_()
        return torch.empty(0, dtype=torch.uint8).set_(storage)

    def check(self, what):
        assert torch.equal(self._without_tensor(), self._before), (
            f"{what}: memory outside of the tensor was written")


def await_work(work, how):
    if how == "wait":
        work.wait()
    elif how == "future":
        work.get_future().then(lambda future: future.value()).wait()
    else:
        until = time.monotonic() + 30
        while not work.is_completed():
            assert time.monotonic() < until, "it doesn't complete by itself"
        assert work.is_success() and work.exception() is None


@dataclasses.dataclass
class Case:
    """One call: on which ranks, of what. `rank` and `root` count in the group.

    `members` are the group's ranks in the world. Values differ by `number`.
    """
    rank: int
    members: tuple
    group: object = dataclasses.field(default=None, repr=False)
    dtype: torch.dtype = torch.float32
    shape: tuple = (4, 6)
    layout: str = "dense"
    reduce: object = _SUM
    root: int = 0
    asynchronous: bool = False
    number: int = 0
    waits: str = "wait"  # or "poll", "future": how it waits if asynchronous
    # Rows that ranks bring where they may differ, row by row of a matrix.
    rows: tuple = ()
    checks: list = dataclasses.field(default_factory=list, repr=False)

    @property
    def size(self):
        return len(self.members)

    def values(self, rank, shape):
        salt = self.members[rank] + 64 * self.number
        expanded = self.layout == EXPANDED and len(shape) > 0
        made = testing.values(salt, (1, *shape[1:]) if expanded else shape,
                              self.dtype)
        if self.reduce == dist.ReduceOp.PRODUCT and made.is_floating_point():
            # So that products are exact.
            made = made.double().remainder(5).sub(2).to(self.dtype)
        return made.expand(shape)

    def shape_of(self, rows):
        return (rows, *self.shape[1:])

    def input(self, tensor):
        laid = lay(tensor, self.layout)
        self.checks.append(lambda: testing.check_equal(
            laid, tensor, f"the input of {self}"))
        return laid

    def output(self, tensor):
        """For results, with the elements of `tensor` before the call."""
        laid = lay(tensor, "dense" if self.layout in (EXPANDED, NEGATED) else
                   self.layout)
        surroundings = _Surroundings(laid)
        self.checks.append(lambda: surroundings.check(self))
        return laid

    def blank(self, shape):
        return self.output(_buffer(shape, self.dtype))

    def call(self, operation, *arguments, **options):
        work = operation(*arguments, group=self.group,
                         async_op=self.asynchronous, **options)
        if self.asynchronous:
            yield
            await_work(work, self.waits)
        for check in self.checks:
            check()

    def check(self, found, wanted):
        testing.check_equal(found, wanted, self)

    def reduced(self, parts):
        return reduced(parts, self.reduce)


def has_meaning(op, dtype):
    """As ccl/kernels/README.md has it, and what c10d lets through."""
    if dtype not in (*testing.REDUCED, torch.bool, torch.float8_e4m3fn,
                     torch.float8_e5m2):
        return False
    if dtype.is_complex:
        return op in (_SUM, _AVG)
    if dtype == torch.bool:
        return op != _AVG
    return op not in _BITS or not dtype.is_floating_point


def reduced(parts, op):
    """What the operator makes of the ranks' parts, in a wide type."""
    dtype = parts[0].dtype
    if op in _BITS:
        total = parts[0]
        for part in parts[1:]:
            total = _BITS[op](total, part)
        return total
    stack = torch.stack([testing.wide(part) for part in parts])
    if op == dist.ReduceOp.MIN:
        return stack.amin(0)
    if op == dist.ReduceOp.MAX:
        return stack.amax(0)
    if op == dist.ReduceOp.PRODUCT:
        return stack.prod(0).to(dtype)
    total = stack.sum(0)
    if dtype == torch.bool:
        return total > 0
    if op == _AVG and not (dtype.is_floating_point or dtype.is_complex):
        return torch.div(testing.wide(total.to(dtype)), len(parts),
                         rounding_mode="trunc")
    if op != _AVG:
        return total
    if dtype.is_complex:
        return torch.view_as_complex(
            torch.view_as_real(total.to(dtype)) / len(parts))
    # The float32 sums of narrow floats are divided, and then rounded.
    return total.to(dtype if dtype.itemsize > 4 else torch.float32) / len(parts)


def all_reduce(case):
    tensor = case.output(case.values(case.rank, case.shape))
    yield from case.call(dist.all_reduce, tensor, op=case.reduce)
    case.check(tensor, case.reduced([case.values(r, case.shape)
                                     for r in range(case.size)]))


def reduce(case):
    mine = case.values(case.rank, case.shape)
    is_root = case.rank == case.root
    tensor = case.output(mine) if is_root else case.input(mine)
    yield from case.call(dist.reduce, tensor, op=case.reduce,
                         group_dst=case.root)
    if is_root:
        case.check(tensor, case.reduced([case.values(r, case.shape)
                                         for r in range(case.size)]))


def broadcast(case):
    wanted = case.values(case.root, case.shape)
    is_root = case.rank == case.root
    tensor = case.input(wanted) if is_root else case.blank(case.shape)
    yield from case.call(dist.broadcast, tensor, group_src=case.root)
    case.check(tensor, wanted)


def _shapes(case):
    if not case.rows:
        return [case.shape] * case.size
    return [case.shape_of(rows) for rows in case.rows]


def all_gather(case):
    shapes = _shapes(case)
    found = [case.blank(shape) for shape in shapes]
    mine = case.input(case.values(case.rank, shapes[case.rank]))
    yield from case.call(dist.all_gather, found, mine)
    for r, tensor in enumerate(found):
        case.check(tensor, case.values(r, shapes[r]))


def all_gather_into_tensor(case):
    wanted = torch.stack([case.values(r, case.shape)
                          for r in range(case.size)])
    if case.shape and case.number % 2 == 0:
        wanted = wanted.flatten(0, 1)
    found = case.blank(wanted.shape)
    mine = case.input(case.values(case.rank, case.shape))
    yield from case.call(dist.all_gather_into_tensor, found, mine)
    case.check(found, wanted)


def gather(case):
    is_root = case.rank == case.root
    found = [case.blank(case.shape) for _ in case.members] if is_root else None
    mine = case.input(case.values(case.rank, case.shape))
    yield from case.call(dist.gather, mine, found, group_dst=case.root)
    for r, tensor in enumerate(found or []):
        case.check(tensor, case.values(r, case.shape))


def scatter(case):
    is_root = case.rank == case.root
    parts = [case.input(case.values(r, case.shape)) for r in
             range(case.size)] if is_root else None
    found = case.blank(case.shape)
    yield from case.call(dist.scatter, found, parts, group_src=case.root)
    case.check(found, case.values(case.rank, case.shape))


def _part_for(case, source, target, shape):
    """Unlike for each target, and for each source."""
    other = dataclasses.replace(case, checks=[],
                                number=case.number * 8 + target)
    return other.values(source, shape)


def _parts_for(case, rank):
    return [_part_for(case, rank, r, shape)
            for r, shape in enumerate(_shapes(case))]


def reduce_scatter(case):
    found = case.blank(_shapes(case)[case.rank])
    mine = [case.input(part) for part in _parts_for(case, case.rank)]
    yield from case.call(dist.reduce_scatter, found, mine, op=case.reduce)
    case.check(found, case.reduced([_parts_for(case, r)[case.rank]
                                    for r in range(case.size)]))


def reduce_scatter_tensor(case):
    shape = case.shape_of(case.shape[0] * case.size) if case.shape else (
        case.size,)
    found = case.blank(case.shape)
    mine = case.input(case.values(case.rank, shape))
    yield from case.call(dist.reduce_scatter_tensor, found, mine,
                         op=case.reduce)
    total = case.reduced([case.values(r, shape) for r in range(case.size)])
    case.check(found, total.reshape(case.size, *case.shape)[case.rank])


def _sent(case, source, target):
    """Of its own shape for each pair, if rows may differ."""
    if not case.rows:
        return _part_for(case, source, target, case.shape)
    rows = (case.rows[source] * 2 + case.rows[target]) % 4
    return _part_for(case, source, target, case.shape_of(rows))


def all_to_all(case):
    ranks = range(case.size)
    found = [case.blank(_sent(case, s, case.rank).shape) for s in ranks]
    mine = [case.input(_sent(case, case.rank, t)) for t in ranks]
    yield from case.call(dist.all_to_all, found, mine)
    for s in ranks:
        case.check(found[s], _sent(case, s, case.rank))


def all_to_all_single(case):
    if not case.shape:
        case = dataclasses.replace(case, shape=(1,), checks=[])
    sent = [_sent(case, case.rank, t) for t in range(case.size)]
    got = [_sent(case, s, case.rank) for s in range(case.size)]
    splits = [[len(part) for part in parts] for parts in (got, sent)]
    wanted = torch.cat(got)
    found = case.blank(wanted.shape)
    mine = case.input(torch.cat(sent))
    yield from case.call(dist.all_to_all_single, found, mine,
                         *(splits if case.rows else []))
    case.check(found, wanted)


def exchange(case):
    """A message to the next rank, one from the rank before."""
    following = (case.rank + 1) % case.size
    before = (case.rank - 1) % case.size
    shapes = _shapes(case)
    found = case.blank(shapes[before])
    sent = case.input(case.values(case.rank, shapes[case.rank]))
    works = [dist.isend(sent, group=case.group, group_dst=following,
                        tag=case.number),
             dist.irecv(found, group=case.group, group_src=before,
                        tag=case.number)]
    if case.asynchronous:
        yield
    for work in works:
        await_work(work, case.waits)
    for check in case.checks:
        check()
    case.check(found, case.values(before, shapes[before]))


def finish(started):
    """What's left of an operation, or all of it."""
    for _ in started:
        pass


OPERATIONS = {f.__name__: f for f in (
    all_reduce, reduce, broadcast, all_gather, all_gather_into_tensor, gather,
    scatter, reduce_scatter, reduce_scatter_tensor, all_to_all,
    all_to_all_single, exchange)}
REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter",
              "reduce_scatter_tensor")
# Those where ranks may bring more or less than others.
UNEVEN = ("all_gather", "reduce_scatter", "all_to_all", "all_to_all_single",
          "exchange")
