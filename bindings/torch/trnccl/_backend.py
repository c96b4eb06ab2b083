# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""The names that torch.distributed knows trnccl by, and how it makes groups."""

import contextlib
import datetime
import functools
import importlib.util
import os
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

# "on" registers "neuron" even where AWS's torch_neuronx is installed.
_SETTING = "TRNCCL_TORCH_NEURON"

_registered: set[str] = set()


def register() -> None:
    """Registers "trnccl", and "neuron" unless AWS's torch_neuronx has it."""
    if not dist.is_available():
        return
    _register("trnccl")
    if os.environ.get(_SETTING, "auto") == "on" or not _has_torch_neuronx():
        _register("neuron")


def _has_torch_neuronx() -> bool:
    return importlib.util.find_spec("torch_neuronx") is not None


def _register(name: str) -> None:
    if name in _registered:
        return
    dist.Backend.register_backend(name, functools.partial(_make, name),
                                  extended_api=True, devices=_devices())
    _registered.add(name)


def _devices() -> list[str]:
    """Naming "neuron" where no such device exists breaks every init."""
    if hasattr(torch, "neuron") and torch._C._get_privateuse1_backend_name(
    ) == "neuron":
        return ["cpu", "neuron"]
    return ["cpu"]


def _extension() -> Any:
    """The C++ part, which is built for one release of PyTorch."""
    installed = torch.__version__.split("+")[0]
    built_for = _built_for() or installed
    if installed.split(".")[:2] != built_for.split(".")[:2]:
        raise RuntimeError(
            f"trnccl was built for PyTorch {built_for}, but {installed} is "
            "installed; install that one, or build trnccl again with yours "
            "(pip install .)")
    from trnccl import _C

    return _C


def _built_for() -> str | None:
    """The PyTorch that setup.py noted; None in the source tree."""
    try:
        from trnccl import _build
    except ImportError:
        return None
    return _build.TORCH


def _mend_coalescing() -> None:
    """Lets a block of coalesced calls that raises leave its group usable.

    PyTorch 2.13's manager forgets to tidy up then: later calls would only be
    noted down, and never made.
    """
    from torch.distributed import distributed_c10d as c10d

    manager = c10d._coalescing_manager
    if hasattr(manager, "tidies_up"):
        return

    @contextlib.contextmanager
    def tidy(group: Any = None, device: Any = None, async_ops: bool = False,
             ) -> Iterator[Any]:
        group = group or c10d._get_default_group()
        nested = bool(c10d._world.pg_coalesce_state.get(group))
        try:
            with manager(group, device, async_ops) as block:
                yield block
        except BaseException:
            if not nested:
                c10d._world.pg_coalesce_state.pop(group, None)
                _cancel_coalescing(group, device)
            raise

    tidy.tidies_up = True
    c10d._coalescing_manager = tidy


def _cancel_coalescing(group: Any, device: Any) -> None:
    if device is not None:
        backend = group._get_backend(torch.device(device))
        if hasattr(backend, "cancel_coalescing"):
            backend.cancel_coalescing()


def _make(name: str, group: Any, options: Any) -> dist.Backend:
    """Makes a group's backend, as c10d's extended interface asks."""
    extension = _extension()
    _mend_coalescing()
    timeout = group.timeout
    if not isinstance(timeout, datetime.timedelta):
        timeout = datetime.timedelta(seconds=float(timeout))
    made = extension.Options(name, timeout)
    # In Gloo's place, profiles are looked through for its name.
    if os.environ.get("TRNCCL_AS_GLOO"):
        made.profiled_as = "gloo"
    made.group_name = group.group_id
    made.global_ranks_in_group = group.global_ranks_in_group
    if options is not None and hasattr(options, "group_desc"):
        made.group_desc = options.group_desc
    return extension.make(group.store, group.group_rank, group.group_size,
                          made)
