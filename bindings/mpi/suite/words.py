# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""How collectives and curves are written for people."""

from plan import Key

_NAMES = {"alltoall": "all-to-all", "alltoallv": "all-to-all-v",
          "sendrecv": "send/receive"}


def collective(benchmark: str) -> str:
    return _NAMES.get(benchmark, benchmark.replace("_", "-"))


def column_text(key: Key) -> str:
    return collective(key.benchmark) + ", registered" * key.registered


def describe(key: Key) -> str:
    words = ["%d ranks" % key.ranks, column_text(key)]
    words += ["fresh"] * key.fresh
    words += [key.type] if key.type != "float" else []
    return ", ".join(words)
