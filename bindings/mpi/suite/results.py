# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""What the runs' JSON says, put together by curve and size."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from figures import Spread, spread_of
from plan import Key, Run

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Finished:
    """A run and the JSON that its benchmark wrote."""
    run: Run
    seconds: float
    result: Json

    def rows(self) -> dict[int, Json]:
        """The rows out of place, by the size that was asked for.

        A row's own size is rounded to what the ranks can share evenly; one
        that's rounded to nothing is left out.
        """
        rows = [row for row in self.result["rows"] if not row["in_place"]]
        return {size: row for size, row in zip(self.run.sizes, rows)
                if row["bytes"] > 0 or self.run.key.benchmark == "barrier"}

    def json(self) -> Json:
        return {"name": self.run.name, **dataclasses.asdict(self.run.key),
                "round": self.run.round, "seconds": round(self.seconds, 1),
                **self.result}


class Results:
    """All that was measured."""

    def __init__(self, finished: Iterable[Finished]):
        self.finished = list(finished)

    def curve(self, key: Key) -> Mapping[int, Json]:
        """Rows by size, rising, of what was compared with MPI."""
        rows: dict[int, Json] = {}
        for done in self.finished:
            if done.run.key == key and done.run.round == 0:
                rows.update(done.rows())
        return dict(sorted(rows.items()))

    def keys(self) -> list[Key]:
        """Of all curves that were compared with MPI, as they were run."""
        return list(dict.fromkeys(done.run.key for done in self.finished
                                  if done.run.round == 0))

    def bandwidth_ratios(self, key: Key) -> Mapping[int, Spread]:
        """Bytes a second of a type : float's, paired round by round."""
        ratios: dict[int, list[float]] = {}
        base = dataclasses.replace(key, type="float")
        rounds = {(done.run.key, done.run.round): done.rows()
                  for done in self.finished if done.run.round > 0}
        for (typed, number), rows in rounds.items():
            floats = rounds.get((base, number))
            if typed != key or floats is None:
                continue
            for size, row in rows.items():
                ratios.setdefault(size, []).append(
                    row["algbw_gbps"] / floats[size]["algbw_gbps"])
        return {size: spread_of(values) for size, values in ratios.items()}

    def cache_line_ns(self) -> Spread | None:
        """Of all runs of 2 ranks, before and after."""
        found = [ns for done in self.finished if done.run.key.ranks == 2
                 for ns in done.result["cache_line_ns"] if ns is not None]
        return spread_of(found) if found else None


def ratio_of(row: Json) -> Spread:
    """Ours : MPI's, over the paired repetitions."""
    return Spread(row["ratio"], row["ratio_min"], row["ratio_max"])
