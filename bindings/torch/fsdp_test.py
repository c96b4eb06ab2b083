#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Fully sharded training on the backend, beside one process on all data."""

import testing  # First: it finds Python and the package.

import re
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions, get_model_state_dict, set_model_state_dict)
from torch.distributed.fsdp import (FullyShardedDataParallel,
                                    MixedPrecisionPolicy, ShardingStrategy,
                                    fully_shard)

_CPU = torch.device("cpu")
_ROWS = 4


def net(dtype=torch.float32):
    """On 4 ranks, 7 rows are uneven, and of 3 rows the last rank has none."""
    torch.manual_seed(5)
    layers = [torch.nn.Linear(6, 7), torch.nn.Linear(7, 8),
              torch.nn.Linear(8, 3)]
    return torch.nn.Sequential(*[
        torch.nn.Sequential(layer, torch.nn.Tanh())
        for layer in layers]).to(dtype)


def batch(rank, step, dtype=torch.float32):
    torch.manual_seed(100 * rank + step)
    return torch.randn(_ROWS, 6, dtype=dtype)


def batches(size, step, dtype=torch.float32):
    return torch.cat([batch(r, step, dtype) for r in range(size)])


def loss_of(model, rows):
    return model(rows).float().pow(2).mean()


def sharded(model, **settings):
    for block in model:
        fully_shard(block, **settings)
    return fully_shard(model, **settings)


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def check_same(found, wanted, what, **limits):
    for (name, one), other in zip(found.named_parameters(),
                                  wanted.parameters()):
        for kind, got, want in (("", one, other),
                                ("'s gradient", one.grad, other.grad)):
            if want is not None:
                torch.testing.assert_close(
                    whole(got.detach()), want.detach(), **limits,
                    msg=lambda text: f"{what}: {name}{kind}: {text}")


def train(model, data, clip=None):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    norms = []
    for rows in data:
        optimizer.zero_grad()
        loss_of(model, rows).backward()
        if clip is not None:
            norms.append(whole(torch.nn.utils.clip_grad_norm_(
                model.parameters(), clip)))
        optimizer.step()
    return norms


def mesh_of(*shape):
    names = ("replicate", "shard")[-len(shape):]
    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def layouts(rank, size):
    """Meshes and ways to keep parameters, in types that AVG and SUM serve."""
    for dtype, shape, settings in (
            (torch.float32, (size,), {}),
            (torch.float64, (size,), {}),
            (torch.float32, (size,), {"reshard_after_forward": False}),
            (torch.float32, (size,), {"reshard_after_forward": 2}),
            (torch.float32, (2, size // 2), {}),
            (torch.float64, (2, size // 2), {})):
        wanted = net(dtype)
        norms = train(wanted, [batches(size, s, dtype) for s in range(3)], 0.1)
        model = sharded(net(dtype), mesh=mesh_of(*shape), **settings)
        found = train(model, [batch(rank, s, dtype) for s in range(3)], 0.1)
        what = f"{dtype} {shape} {settings}"
        check_same(model, wanted, what)
        torch.testing.assert_close(found, norms, msg=what)


def accumulated(rank, size):
    """Gradients of two halves, reduced once, in a HSDP mesh and in a flat."""
    for shape in ((size,), (2, size // 2)):
        wanted, model = net(), sharded(net(), mesh=mesh_of(*shape))
        for step in range(2):
            loss_of(wanted, batches(size, step)).backward()
            model.set_requires_gradient_sync(step == 1)
            loss_of(model, batch(rank, step)).backward()
        check_same(model, wanted, shape)


def narrow_grads(size, dtype):
    """The mean over ranks of what each computes in `dtype`, not rounded."""
    grads = []
    for rank in range(size):
        model = net().to(dtype)
        loss_of(model, batch(rank, 0).to(dtype)).backward()
        grads.append([p.grad.double() for p in model.parameters()])
    return [sum(same) / size for same in zip(*grads)]


def mixed(rank, size):
    """Reduced in 16 bits: at most one rounding beside the exact mean."""
    # Float16 is divided before and after its sum, to stay in range.
    for dtype, ulp in ((torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-9)):
        wanted = narrow_grads(size, dtype)
        for reduce_dtype in (dtype, torch.float32):
            policy = MixedPrecisionPolicy(dtype, reduce_dtype)
            model = sharded(net(), mesh=mesh_of(size), mp_policy=policy)
            loss_of(model, batch(rank, 0)).backward()
            for one, mean in zip(model.parameters(), wanted):
                found = one.grad.full_tensor()
                assert found.dtype == torch.float32
                torch.testing.assert_close(
                    found.double(), mean, atol=1e-7,
                    rtol=ulp if reduce_dtype == dtype else 1e-6,
                    msg=lambda text: f"{policy}: {text}")


def divided(rank, size):
    """A divisor of the user's is a premultiplied sum."""
    for shape, factor in (((size,), 3.0), ((size,), 0.5),
                          ((2, size // 2), 8.0)):
        wanted, model = net(), sharded(net(), mesh=mesh_of(*shape))
        (loss_of(wanted, batches(size, 0)) * size / factor).backward()
        model.set_gradient_divide_factor(factor)
        for block in model:
            block.set_gradient_divide_factor(factor)
        loss_of(model, batch(rank, 0)).backward()
        check_same(model, wanted, factor)


def is_shared_memory(pointer):
    with open("/proc/self/maps") as maps:
        for line in maps:
            first, last = (int(x, 16) for x in line.split()[0].split("-"))
            if first <= pointer < last:
                return re.search("memfd:", line) is not None
    return False


def registered(rank, size):
    """With memory of the group's the bits are the same, and nothing copied."""
    backend = dist.group.WORLD._get_backend(_CPU)
    assert backend.supports_tensor_alloc(_CPU)
    results = []
    for shared in (False, True):
        torch.manual_seed(1)
        model = torch.nn.Sequential(
            *[torch.nn.Linear(300, 300) for _ in range(3)])
        model = sharded(model, mesh=mesh_of(size))
        for part in (model, *model):
            part.set_allocate_memory_from_process_group_for_comm(shared)
        with mock.patch.object(dist, "all_gather_single",
                               wraps=dist.all_gather_single) as gathers, \
                mock.patch.object(dist, "reduce_scatter_single",
                                  wraps=dist.reduce_scatter_single) as scatters:
            torch.manual_seed(rank)
            for _ in range(2):
                loss_of(model, torch.randn(4, 300)).backward()
        used = [call.args[0] for call in gathers.call_args_list]
        used += [call.kwargs["input"] for call in scatters.call_args_list]
        assert len(used) >= 12, len(used)
        for tensor in used:
            assert is_shared_memory(tensor.data_ptr()) == shared
        results.append([p.grad.full_tensor() for p in model.parameters()])
    for one, other in zip(*results):
        testing.check_equal(one, other, "shared memory")


def moved(rank, size):
    """A model made on "meta", loaded from rank 0, prefetching as told."""
    wanted = net()
    with torch.device("meta"):
        model = net()
    model = sharded(model, mesh=mesh_of(size))
    model.to_empty(device="cpu")
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, wanted.state_dict() if rank == 0 else {},
                         options=options)
    check_same(model, wanted, "loaded from rank 0")
    model[0].set_modules_to_forward_prefetch([model[1], model[2]])
    model[2].set_modules_to_backward_prefetch([model[1]])
    model.unshard(async_op=True).wait()
    loss_of(wanted, batches(size, 0)).backward()
    loss_of(model, batch(rank, 0)).backward()
    check_same(model, wanted, "prefetched")
    state = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True))
    for name, tensor in state.items():
        testing.check_equal(tensor, wanted.state_dict()[name], name)


def first_kind(rank, size):
    """FSDP1, which some still use."""
    strategies = ShardingStrategy
    for strategy in (strategies.FULL_SHARD, strategies.SHARD_GRAD_OP,
                     strategies.NO_SHARD, strategies.HYBRID_SHARD):
        settings = {"use_orig_params": True, "device_id": _CPU}
        if strategy == strategies.HYBRID_SHARD:
            settings["device_mesh"] = mesh_of(2, size // 2)
        wanted, model = net(), net()
        for i, block in enumerate(model):
            model[i] = FullyShardedDataParallel(
                block, sharding_strategy=strategy, **settings)
        model = FullyShardedDataParallel(model, sharding_strategy=strategy,
                                         **settings)
        train(wanted, [batches(size, s) for s in range(2)])
        train(model, [batch(rank, s) for s in range(2)])
        with FullyShardedDataParallel.summon_full_params(model):
            for one, other in zip(model.parameters(), wanted.parameters()):
                torch.testing.assert_close(one, other, msg=strategy.name)


class Fsdp(testing.RanksTest):

    def test_trains_as_one_process(self):
        self.check(layouts, accumulated, mixed, divided, registered, moved,
                   first_kind, sizes=(4,))


if __name__ == "__main__":
    testing.main()
