# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Which ranks of a group are lost: the others agree on it, by its store."""

import datetime
import json
import re
import time
from typing import Any

import torch
import torch.distributed as dist

_POLL_S = 0.01


def _origin_of(error: BaseException) -> int | None:
    """The rank that the error began with; None if it doesn't tell."""
    found = re.search(r"origin: rank (\d+)", str(error))
    return None if found is None else int(found[1])


def agree(group: dist.ProcessGroup | None, error: BaseException,
          patience: datetime.timedelta) -> list[int]:
    """See trnccl.lost_ranks()."""
    group = group or dist.group.WORLD
    assert group is not None, "init_process_group() hasn't been called"
    suspect = _origin_of(error)
    # Unlike the group's name, no other that the store knew had this.
    backend: Any = group._get_backend(torch.device("cpu"))
    name = json.loads(backend.dump_calls())["communicator"]
    prefix = f"trnccl_lost_ranks/{name}/"
    store = group.get_group_store()
    store.set(f"{prefix}{group.rank()}", "here")
    verdict = prefix + "verdict"
    until = time.monotonic() + patience.total_seconds()
    while not store.check([verdict]):
        lost = [rank for rank in range(group.size())
                if not store.check([f"{prefix}{rank}"])]
        if lost in ([], [suspect]) or time.monotonic() > until:
            # The first to say so is believed.
            store.compare_set(verdict, "", ",".join(map(str, lost)) or "none")
            break
        time.sleep(_POLL_S)
    said = store.get(verdict).decode()
    return [] if said == "none" else [int(rank) for rank in said.split(",")]
