# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Two functions of PyTorch 2.13's c10d that fail backends not its own."""

import contextlib
import functools
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import distributed_c10d as c10d


@functools.cache
def apply() -> None:
    """Mends both, in this process. Other backends see no difference."""
    c10d._coalescing_manager = _tidy(c10d._coalescing_manager)
    c10d._set_pg_timeout = _for_ours_too(c10d._set_pg_timeout)


def _ours(group: Any, device: Any) -> Any:
    """The group's backend for the device, if it's one of trnccl; or None."""
    from trnccl import _C

    backend = group._get_backend(torch.device(device))
    return backend if isinstance(backend, _C.ProcessGroupNeuron) else None


def _tidy(manager: Any) -> Any:
    """Lets a block of coalesced calls that raises leave its group usable.

    PyTorch's own forgets to tidy up then: later calls would only be noted
    down, and never made.
    """

    @contextlib.contextmanager
    def coalescing(group: Any = None, device: Any = None,
                   async_ops: bool = False) -> Iterator[Any]:
        group = group or c10d._get_default_group()
        nested = bool(c10d._world.pg_coalesce_state.get(group))
        try:
            with manager(group, device, async_ops) as block:
                yield block
        except BaseException:
            if not nested:
                c10d._world.pg_coalesce_state.pop(group, None)
                if device is not None and (ours := _ours(group, device)):
                    ours.cancel_coalescing()
            raise

    return coalescing


def _for_ours_too(set_timeout: Any) -> Any:
    """PyTorch's own sets the timeout of NCCL's and Gloo's groups only."""

    @functools.wraps(set_timeout)
    def set_pg_timeout(timeout: timedelta, group: Any = None) -> None:
        group = group or c10d._get_default_group()
        cpu = torch.device("cpu")
        if isinstance(group, c10d.ProcessGroup) and cpu in group._device_types:
            if ours := _ours(group, cpu):
                ours.set_timeout(timeout)
                return
        set_timeout(timeout, group)

    return set_pg_timeout
