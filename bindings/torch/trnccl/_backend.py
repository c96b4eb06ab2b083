# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""The names that torch.distributed knows trnccl by, and how it makes groups."""

import datetime
import functools
import importlib.util
import os
from typing import Any

import torch
import torch.distributed as dist

from trnccl import _mends

# "on" registers "neuron" even where AWS's torch_neuronx is installed.
_SETTING = "TRNCCL_TORCH_NEURON"

_registered: set[str] = set()


def register() -> None:
    """Registers "trnccl", and "neuron" unless AWS's torch_neuronx has it."""
    if not dist.is_available():
        return
    _mends.give_defaults()
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


def extension() -> Any:
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


def _make(name: str, group: Any, options: Any) -> dist.Backend:
    """Makes a group's backend, as c10d's extended interface asks."""
    built = extension()
    _mends.apply()
    timeout = group.timeout
    if not isinstance(timeout, datetime.timedelta):
        timeout = datetime.timedelta(seconds=float(timeout))
    made = built.Options(name, timeout)
    # In Gloo's place, profiles are looked through for its name.
    if os.environ.get("TRNCCL_AS_GLOO"):
        made.profiled_as = "gloo"
    made.group_name = group.group_id
    made.global_ranks_in_group = group.global_ranks_in_group
    if options is not None and hasattr(options, "group_desc"):
        made.group_desc = options.group_desc
    return built.make(group.store, group.group_rank, group.group_size, made)
