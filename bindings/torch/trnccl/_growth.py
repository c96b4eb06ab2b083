# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Newcomers to the default group, who find it by a store.

Each takes a ticket, which rank 0 answers with a place in a new default group:
PyTorch knows one at a time, and it's that one that DDP, FSDP2 and the like use.
"""

import datetime
import json
import time
from typing import Any

import torch
import torch.distributed as dist

_POLL_S = 0.01
_TAKEN = "trnccl_newcomers/taken"
_GROUPS = "trnccl_newcomers/groups"
_GONE = "gone"


def _ticket(number: int) -> str:
    return f"trnccl_newcomers/{number}"


def _waiting(store: dist.Store) -> list[int]:
    """The tickets that have no answer yet."""
    return [number for number in range(store.add(_TAKEN, 0))
            if not store.check([_ticket(number)])]


def grow(store: dist.Store, newcomers: int,
         patience: datetime.timedelta) -> None:
    """See trnccl.grow_group()."""
    group = dist.group.WORLD
    assert group is not None, "init_process_group() hasn't been called"
    rank = dist.get_rank()
    said: list[Any] = [None]
    if rank == 0:
        said[0] = _admit(group, store, newcomers, patience)
    dist.broadcast_object_list(said, src=0)
    if isinstance(said[0], str):
        raise dist.DistBackendError(said[0])
    dist.destroy_process_group()
    _meet(store, {**said[0], "rank": rank})


def join(store: dist.Store, patience: datetime.timedelta) -> None:
    """See trnccl.join_group()."""
    mine = _ticket(store.add(_TAKEN, 1) - 1)
    until = time.monotonic() + patience.total_seconds()
    while not store.check([mine]):
        if time.monotonic() > until:
            # Unless a place has been found at this very moment.
            store.compare_set(mine, "", _GONE)
            break
        time.sleep(_POLL_S)
    place = store.get(mine).decode()
    if place == _GONE:
        raise dist.DistBackendError(
            f"no group has taken this process in within {patience}; its ranks "
            "call trnccl.grow_group() by the same store")
    _meet(store, json.loads(place))


def _admit(group: dist.ProcessGroup, store: dist.Store, newcomers: int,
           patience: datetime.timedelta) -> dict[str, Any] | str:
    """Gives places to those who wait; what all have to know, or what's wrong.
    """
    until = time.monotonic() + patience.total_seconds()
    while len(waiting := _waiting(store)) < newcomers:
        if time.monotonic() > until:
            return (f"{len(waiting)} of {newcomers} newcomers have called "
                    f"trnccl.join_group() within {patience}")
        time.sleep(_POLL_S)
    size = group.size()
    backend: Any = group._get_backend(torch.device("cpu"))
    made = {"number": store.add(_GROUPS, 1), "size": size + newcomers,
            "backend": dist.get_backend(group),
            "seconds": backend.options._timeout.total_seconds()}
    for rank, number in enumerate(waiting[:newcomers], start=size):
        store.compare_set(_ticket(number), "",
                          json.dumps({**made, "rank": rank}))
    return made


def _meet(store: dist.Store, place: dict[str, Any]) -> None:
    dist.init_process_group(
        place["backend"], rank=place["rank"], world_size=place["size"],
        store=dist.PrefixStore(f"trnccl_grown/{place['number']}", store),
        timeout=datetime.timedelta(seconds=place["seconds"]))
