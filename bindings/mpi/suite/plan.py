# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Which benchmarks run, with which sizes: no more than data.

The sizes hit those of the goals, and are few enough for a quarter of an hour.
"""

import dataclasses
from collections.abc import Iterator, Sequence

KIB, MIB = 1 << 10, 1 << 20

MAIN = ("all_reduce", "all_gather", "reduce_scatter")
OTHERS = ("broadcast", "reduce", "alltoall", "alltoallv", "gather", "scatter",
          "sendrecv", "barrier")
BENCHMARKS = MAIN + OTHERS

RANKS = (2, 4, 8)
# Beyond so many, only the main collectives run.
MOST_RANKS_OF_OTHERS = 4
# The cost of fresh input needs a core for each rank to be seen.
RANKS_OF_FRESH = 2
RANKS_OF_TYPES = 2

TYPES = ("float", "half", "bfloat16")


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Bytes from smallest to largest, by a factor of at least 2."""
    smallest: int
    largest: int
    factor: int = 2

    def __iter__(self) -> Iterator[int]:
        size = self.smallest
        while size <= self.largest:
            yield size
            size *= self.factor

    def up_to(self, max_bytes: int) -> "Sizes":
        return dataclasses.replace(self, largest=min(self.largest, max_bytes))


@dataclasses.dataclass(frozen=True)
class Detail:
    """How much is measured."""
    main: Sequence[Sizes]
    crowded: Sequence[Sizes]  # the main collectives, with many ranks
    fresh: Sequence[Sizes]
    others: Sequence[Sizes]
    types: Sequence[Sizes]
    type_rounds: int
    memory: Sequence[bool]  # registered or not; main has both


FULL = Detail(
    main=(Sizes(8, 32 * KIB, 4), Sizes(64, KIB, 16),
          Sizes(256 * KIB, 16 * MIB, 4), Sizes(128 * MIB, 128 * MIB)),
    crowded=(Sizes(64, KIB, 16), Sizes(8 * KIB, 32 * KIB, 4),
             Sizes(256 * KIB, 16 * MIB, 4)),
    fresh=(Sizes(64, 128 * MIB, 8),),
    others=(Sizes(64, 16 * MIB, 8),),
    types=(Sizes(MIB, 64 * MIB, 8),),
    type_rounds=3,
    memory=(False, True))

QUICK = Detail(
    main=(Sizes(64, 4 * MIB, 16),),
    crowded=(Sizes(64, 4 * MIB, 16),),
    fresh=(Sizes(64, 4 * MIB, 256),),
    others=(Sizes(64, 64 * KIB, 1024),),
    types=(Sizes(MIB, MIB),),
    type_rounds=1,
    memory=(False,))

NO_DATA = (Sizes(1, 1),)


@dataclasses.dataclass(frozen=True)
class Key:
    """What a curve shows."""
    benchmark: str
    ranks: int
    registered: bool = False
    fresh: bool = False
    type: str = "float"


@dataclasses.dataclass(frozen=True)
class Run:
    """One mpirun. A curve may be made of several, with other sizes."""
    key: Key
    sizes: Sizes
    # Runs of one round are compared with each other; 0: with MPI.
    round: int = 0

    @property
    def name(self) -> str:
        key = self.key
        words = [key.benchmark, str(key.ranks)]
        words += ["registered"] * key.registered + ["fresh"] * key.fresh
        if self.round:
            words += [key.type, str(self.round)]
        return "-".join(words + ["%dB" % self.sizes.smallest])

    def flags(self) -> list[str]:
        sizes = self.sizes
        flags = ["-b", str(sizes.smallest), "-e", str(sizes.largest)]
        if sizes.smallest < sizes.largest:
            flags += ["-f", str(sizes.factor)]
        flags += ["-d", self.key.type] * (self.key.type != "float")
        flags += ["-R", "1"] * self.key.registered
        flags += ["--fresh", "1"] * self.key.fresh
        # Making the check's 16-bit floats takes longer than timing them.
        return flags + (["-c", "0"] if self.round else ["--compare", "mpi"])


@dataclasses.dataclass(frozen=True)
class Choice:
    """What the command line asks for."""
    benchmarks: Sequence[str] = BENCHMARKS
    ranks: Sequence[int] = RANKS
    max_bytes: int = 128 * MIB
    detail: Detail = FULL


def make_plan(choice: Choice) -> list[Run]:
    """All runs, in order; those of one curve follow each other."""
    runs = list(_compared(choice))
    if "all_reduce" in choice.benchmarks and RANKS_OF_TYPES in choice.ranks:
        runs += _of_types(choice.detail)
    runs = [dataclasses.replace(run, sizes=run.sizes.up_to(choice.max_bytes))
            for run in runs]
    return [run for run in runs if run.sizes.smallest <= choice.max_bytes]


def _compared(choice: Choice) -> Iterator[Run]:
    for ranks in choice.ranks:
        for benchmark in choice.benchmarks:
            curves = _main if benchmark in MAIN else _other
            for key, ranges in curves(benchmark, ranks, choice.detail):
                for sizes in ranges:
                    yield Run(key, sizes)


Curves = Iterator[tuple[Key, Sequence[Sizes]]]


def _main(benchmark: str, ranks: int, detail: Detail) -> Curves:
    crowded = ranks > MOST_RANKS_OF_OTHERS
    for registered in (False, True):
        yield (Key(benchmark, ranks, registered),
               detail.crowded if crowded else detail.main)
    if ranks == RANKS_OF_FRESH:
        for registered in detail.memory:
            yield Key(benchmark, ranks, registered, fresh=True), detail.fresh


def _other(benchmark: str, ranks: int, detail: Detail) -> Curves:
    if ranks > MOST_RANKS_OF_OTHERS:
        return
    if benchmark == "barrier":
        yield Key(benchmark, ranks), NO_DATA
        return
    for registered in detail.memory:
        yield Key(benchmark, ranks, registered), detail.others


def _of_types(detail: Detail) -> Iterator[Run]:
    for registered in detail.memory:
        for number in range(1, 1 + detail.type_rounds):
            for name in TYPES:
                key = Key("all_reduce", RANKS_OF_TYPES, registered, type=name)
                for sizes in detail.types:
                    yield Run(key, sizes, number)
