#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Distributed checkpoints: saved by some ranks, loaded by others."""

import testing  # First: it finds Python and the package.

import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions, get_model_state_dict, get_state_dict,
    set_model_state_dict, set_optimizer_state_dict, set_state_dict)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (ColwiseParallel,
                                               RowwiseParallel,
                                               parallelize_module)

_STEPS = 3


def net():
    """Its 8 and 6 rows are even and uneven, by the number of ranks."""
    torch.manual_seed(9)
    return torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(),
                               torch.nn.Linear(8, 6)).double()


def train(model, optimizer, steps):
    """On the same rows in all ranks: the mean over ranks is one's gradient."""
    for step in steps:
        torch.manual_seed(step)
        optimizer.zero_grad()
        model(torch.randn(4, 5, dtype=torch.float64)).pow(2).mean().backward()
        optimizer.step()


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=0.05)


def reference(steps):
    model = net()
    train(model, adam(model), range(steps))
    return model


def sharded(size):
    model = net()
    mesh = init_device_mesh("cpu", (size,))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def sharded_twice(size):
    model = net()
    mesh = init_device_mesh("cpu", (2, size // 2),
                            mesh_dim_names=("data", "tensor"))
    parallelize_module(model, mesh["tensor"],
                       {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return fully_shard(model, mesh=mesh["data"])


def check_model(model, steps, what):
    state = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True))
    for name, tensor in reference(steps).state_dict().items():
        torch.testing.assert_close(state[name], tensor,
                                   msg=lambda text: f"{what} {name}: {text}")


def folder(name):
    return os.path.join(os.environ["FOLDER"], name)


def saves(rank, size):
    for name, make in (("flat", sharded), ("grid", sharded_twice)):
        model = make(size)
        optimizer = adam(model)
        train(model, optimizer, range(_STEPS))
        parts = get_state_dict(model, optimizer)
        checkpoint.save({"model": parts[0], "optimizer": parts[1],
                         "steps": _STEPS, "ranks": [rank] * rank},
                        checkpoint_id=folder(name))
        # Another that's written while training goes on.
        group = dist.new_group()
        saving = checkpoint.async_save(
            {"model": parts[0], "optimizer": parts[1]},
            checkpoint_id=folder("async_" + name), process_group=group)
        train(model, optimizer, range(_STEPS, _STEPS + 2))
        saving.result()
        check_model(model, _STEPS + 2, "trained on")
        dist.barrier()


def loads(rank, size):
    for name in ("flat", "grid", "async_flat", "async_grid"):
        model = sharded(size)
        optimizer = adam(model)
        parts = get_state_dict(model, optimizer)
        state = {"model": parts[0], "optimizer": parts[1]}
        if "async" not in name:
            state["steps"] = 0
        checkpoint.load(state, checkpoint_id=folder(name))
        set_state_dict(model, optimizer, model_state_dict=state["model"],
                       optim_state_dict=state["optimizer"])
        assert state.get("steps", _STEPS) == _STEPS
        check_model(model, _STEPS, name)
        train(model, optimizer, range(_STEPS, _STEPS + 2))
        check_model(model, _STEPS + 2, f"{name}, trained on")


def restores(rank, size):
    """From one file of rank 0, model and optimizer, by broadcasts."""
    whole = torch.load(folder("whole.pt")) if rank == 0 else {}
    model = sharded(size)
    optimizer = adam(model)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, whole.get("model", {}), options=options)
    set_optimizer_state_dict(model, optimizer, whole.get("optimizer", {}),
                             options=options)
    check_model(model, _STEPS, "from a file")
    train(model, optimizer, range(_STEPS, _STEPS + 2))
    check_model(model, _STEPS + 2, "from a file, trained on")


class Checkpoint(testing.RanksTest):

    def test_is_loaded_by_any_number_of_ranks(self):
        with tempfile.TemporaryDirectory() as where:
            environment = {"FOLDER": where}
            self.check(saves, sizes=(4,), environment=environment)
            dcp_to_torch_save(f"{where}/grid", f"{where}/whole.pt")
            self.check(loads, restores, sizes=(2, 3), environment=environment)


if __name__ == "__main__":
    testing.main()
