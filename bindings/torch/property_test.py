#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Random calls, on random groups, several under way at once, against what one
process computes from the values of all ranks.

PROPERTY_CASES is how many; PROPERTY_SEED repeats a run.
"""

import testing  # First: it chooses the Python.

import dataclasses
import os
import random

import torch
import torch.distributed as dist

from operations import (EXPANDED, LAYOUTS, NEGATED, OPERATIONS, OPERATORS,
                        REDUCTIONS, UNEVEN, Case, finish, has_meaning)

_CASES = int(os.environ.get("PROPERTY_CASES", "1500"))
_SEED = int(os.environ.get("PROPERTY_SEED", random.getrandbits(32)))
# Groups by their ranks: all, some, in any order, one alone.
_GROUPS = ((0, 1, 2, 3), (3, 1), (2, 0, 3), (1, 0), (3, 2, 1, 0), (2,))
_AT_ONCE = 6


def _shape(choice):
    kind = choice.random()
    if kind < 0.1:
        return ()
    if kind < 0.2:
        return (choice.choice((0, 1)), choice.randrange(3), 2)
    if kind < 0.3:
        return tuple(choice.randrange(1, 5) for _ in range(4))
    if kind < 0.35:
        return (choice.randrange(1, 4), choice.randrange(1, 60_000))
    return (choice.randrange(1, 40), choice.randrange(1, 40))


def _case(choice, number):
    """The name of an operation, and the case as all ranks have it."""
    name = choice.choice(sorted(OPERATIONS))
    dtype = choice.choice(testing.MOVED)
    op = choice.choice(OPERATORS)
    while name in REDUCTIONS and not has_meaning(op, dtype):
        dtype, op = choice.choice(testing.MOVED), choice.choice(OPERATORS)
    members = choice.choice(_GROUPS)
    shape = _shape(choice)
    uneven = shape and name in UNEVEN and choice.random() < 0.5
    return name, Case(
        rank=-1, members=members, dtype=dtype, shape=shape, number=number,
        layout=EXPANDED if choice.random() < 0.1 else "dense",
        reduce=op if name in REDUCTIONS else dist.ReduceOp.SUM,
        root=choice.randrange(len(members)),
        rows=tuple(choice.randrange(4) for _ in members) if uneven else ())


def random_calls(rank, size, seed):
    groups = {_GROUPS[0]: None}
    for members in _GROUPS[1:]:
        groups[members] = dist.new_group(list(members), sort_ranks=False)
    shared, mine = random.Random(seed), random.Random(seed + rank)
    under_way = []
    for number in range(_CASES):
        name, case = _case(shared, number)
        if rank not in case.members:
            continue
        # What's a rank's own affair.
        layout = case.layout if case.layout == EXPANDED else mine.choice(
            (*LAYOUTS, NEGATED))
        case = dataclasses.replace(
            case, rank=case.members.index(rank), group=groups[case.members],
            layout=layout, asynchronous=mine.random() < 0.6, checks=[],
            waits=mine.choice(("wait", "poll", "future")))
        try:
            started = OPERATIONS[name](case)
            next(started, None)
            under_way.append(started)
            # Each rank waits when and in what order it likes.
            while len(under_way) > mine.randrange(1, _AT_ONCE):
                finish(under_way.pop(mine.randrange(len(under_way))))
        except Exception as error:
            raise AssertionError(f"seed {seed}, {name}: {case}") from error
    for started in under_way:
        finish(started)


class Properties(testing.RanksTest):

    def test_random_calls_are_as_one_process_computes_them(self):
        print("seed", _SEED, flush=True)
        testing.run_ranks(random_calls, size=4, arguments=(_SEED,))


if __name__ == "__main__":
    testing.main()
