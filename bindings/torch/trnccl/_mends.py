# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Four functions of PyTorch 2.13's c10d that fail backends not its own."""

import contextlib
import functools
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d


@functools.cache
def give_defaults() -> None:
    """Mends what a mere registration breaks. Before the first group is made."""
    c10d._new_process_group_helper = _with_default(
        c10d._new_process_group_helper)


@functools.cache
def apply() -> None:
    """Mends the others, in this process. Other backends see no difference."""
    c10d._coalescing_manager = _tidy(c10d._coalescing_manager)
    c10d._set_pg_timeout = _for_ours_too(c10d._set_pg_timeout)
    c10d.monitored_barrier = _not_for_gloo_alone(c10d.monitored_barrier)
    dist.monitored_barrier = c10d.monitored_barrier


def _ours(group: Any, device: Any) -> Any:
    """The group's backend for the device, if it's one of trnccl; or None."""
    from trnccl import _C

    backend = group._get_backend(torch.device(device))
    return backend if isinstance(backend, _C.ProcessGroupNeuron) else None


def _ours_on_cpu(group: Any) -> Any:
    """The same for tensors on the CPU; None for what's no group."""
    cpu = torch.device("cpu")
    if isinstance(group, c10d.ProcessGroup) and cpu in group._device_types:
        return _ours(group, cpu)
    return None


def _with_default(make: Any) -> Any:
    """Names the default backend of groups made by strings like "cpu:gloo".

    As soon as there's any backend not its own, PyTorch's own forgets to, for
    Gloo's groups too: what asks for it then warns or raises.
    """

    @functools.wraps(make)
    def new_process_group_helper(*args: Any, **settings: Any) -> Any:
        group, store = make(*args, **settings)
        if isinstance(group, c10d.ProcessGroup) and group.name() == "undefined":
            config = c10d.BackendConfig(c10d.Backend(
                c10d._world.pg_backend_config[group]))
            names = set(config.get_device_backend_map().values())
            kinds = {c10d.Backend.backend_type_map.get(name) for name in names}
            for kind in (c10d.ProcessGroup.BackendType.CUSTOM,
                         c10d.ProcessGroup.BackendType.GLOO):
                if kind in kinds:
                    group._set_default_backend(kind)
                    break
        return group, store

    return new_process_group_helper


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
        if ours := _ours_on_cpu(group):
            ours.set_timeout(timeout)
        else:
            set_timeout(timeout, group)

    return set_pg_timeout


def _not_for_gloo_alone(barrier: Any) -> Any:
    """PyTorch's own refuses all groups but Gloo's."""

    @functools.wraps(barrier)
    def monitored_barrier(group: Any = None, timeout: timedelta | None = None,
                          wait_all_ranks: bool = False) -> None:
        group = group or c10d._get_default_group()
        if ours := _ours_on_cpu(group):
            group.monitored_barrier(timeout or ours.options._timeout,
                                    wait_all_ranks=wait_all_ranks)
        else:
            barrier(group, timeout, wait_all_ranks)

    return monitored_barrier
