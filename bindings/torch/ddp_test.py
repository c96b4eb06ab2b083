#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""DistributedDataParallel on the backend, beside one process on all data.

In float64, so that what differs is more than the order of additions.
"""

import testing  # First: it finds Python and the package.

import copy
import warnings

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import (
    ddp_zero_hook, default_hooks, powerSGD_hook)
from torch.distributed.algorithms.join import Join
from torch.distributed.algorithms.model_averaging import averagers
from torch.distributed.optim import (PostLocalSGDOptimizer,
                                     ZeroRedundancyOptimizer)
from torch.nn.parallel import DistributedDataParallel

_STEPS = 3
_BATCH = 4


class Net(torch.nn.Module):
    """Parts of it can be left out: their parameters get no gradient."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(11)
        self.into = torch.nn.Linear(6, 24)
        self.branches = torch.nn.ModuleList(
            torch.nn.Linear(24, 24) for _ in range(3))
        self.out = torch.nn.Linear(24, 3)
        self.double()

    def forward(self, rows, branches=(0, 1, 2)):
        hidden = self.into(rows).tanh()
        for i in branches:
            hidden = hidden + self.branches[i](hidden).tanh()
        return self.out(hidden)


def batch(rank, step, rows=_BATCH):
    torch.manual_seed(1000 * rank + step)
    return torch.randn(rows, 6, dtype=torch.float64)


def batches(step, size):
    return torch.cat([batch(rank, step) for rank in range(size)])


def loss_of(model, rows, *args):
    return model(rows, *args).pow(2).mean()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train(model, optimizer, data, *args):
    for rows in data:
        optimizer.zero_grad()
        loss_of(model, rows, *args).backward()
        optimizer.step()


def reference(size, *args, steps=_STEPS, make=sgd):
    model = Net()
    train(model, make(model), [batches(s, size) for s in range(steps)], *args)
    return model


def check_same(found, wanted, what, **limits):
    if isinstance(found, DistributedDataParallel):
        found = found.module
    for (name, one), other in zip(found.named_parameters(),
                                  wanted.parameters()):
        torch.testing.assert_close(
            one, other, msg=lambda text: f"{what}, {name}: {text}", **limits)


def variants(rank, size):
    wanted = reference(size)
    mine = [batch(rank, step) for step in range(_STEPS)]
    for settings in ({}, {"gradient_as_bucket_view": True},
                     {"bucket_cap_mb": 0.001},
                     {"bucket_cap_mb": 0.001, "static_graph": True},
                     {"find_unused_parameters": True},
                     {"broadcast_buffers": False, "init_sync": False},
                     {"process_group": dist.new_group(backend="trnccl")}):
        model = DistributedDataParallel(Net(), **settings)
        train(model, sgd(model), mine)
        check_same(model, wanted, settings)


def starts_alike(rank, size):
    """The model of rank 0 counts, its buffers too."""
    torch.manual_seed(rank)
    plain = torch.nn.Sequential(torch.nn.Linear(4, 4),
                                torch.nn.BatchNorm1d(4)).double()
    model = DistributedDataParallel(copy.deepcopy(plain))
    model(torch.randn(8, 4, dtype=torch.float64)).sum().backward()
    model(torch.randn(8, 4, dtype=torch.float64))
    for name, tensor in model.module.state_dict().items():
        if "running" in name or "num" in name:
            continue
        first = tensor.clone()
        dist.broadcast(first, 0)
        testing.check_equal(tensor, first, name)
    torch.manual_seed(0)
    wanted = torch.nn.Linear(4, 4).double()
    testing.check_equal(model.module[0].weight, wanted.weight, "of rank 0")


def unused(rank, size):
    """Each rank goes another way through the model."""
    way = (rank % 3,)
    model = DistributedDataParallel(Net(), find_unused_parameters=True,
                                    bucket_cap_mb=0.001)
    plain = Net()
    for step in range(2):
        loss_of(model, batch(rank, step), way).backward()
        for other in range(size):
            (loss_of(plain, batch(other, step), (other % 3,)) / size).backward()
    for (name, one), other in zip(model.module.named_parameters(),
                                  plain.parameters()):
        if other.grad is not None:
            torch.testing.assert_close(one.grad, other.grad, msg=name)


def accumulated(rank, size):
    """With no_sync() the first halves cost no communication."""
    model, plain = DistributedDataParallel(Net()), Net()
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    before = backend._get_sequence_number_for_group()
    with model.no_sync():
        loss_of(model, batch(rank, 0)).backward()
    assert backend._get_sequence_number_for_group() == before
    loss_of(model, batch(rank, 1)).backward()
    assert backend._get_sequence_number_for_group() > before
    for step in range(2):
        loss_of(plain, batches(step, size)).backward()
    for one, other in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(one.grad, other.grad)


def hooks(rank, size):
    wanted = reference(size)
    mine = [batch(rank, step) for step in range(_STEPS)]
    for hook, limits in (
            (default_hooks.allreduce_hook, {}),
            (default_hooks.fp16_compress_hook, {"rtol": 0.02, "atol": 2e-3})):
        model = DistributedDataParallel(Net(), bucket_cap_mb=0.001)
        model.register_comm_hook(None, hook)
        train(model, sgd(model), mine)
        check_same(model, wanted, hook.__name__, **limits)
        same_everywhere(model, hook.__name__)
    # Its callbacks wait for calls of their own (in one bucket: those of others
    # come in no order). As the matrices' rank isn't lowered, it's exact but for
    # what orthogonalizing them costs.
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=24, start_powerSGD_iter=2,
        min_compression_rate=0.1)
    model = DistributedDataParallel(Net())
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    train(model, sgd(model), mine)
    same_everywhere(model, "PowerSGD")
    check_same(model, wanted, "PowerSGD", rtol=1e-6, atol=1e-6)


def callbacks(rank, size):
    """What's chained to a future may make calls, and wait for any."""
    one, other = testing.values(rank, (9,)), testing.values(rank + 1, (9,))
    first = dist.all_reduce(one, async_op=True).get_future()
    second = dist.all_reduce(other, async_op=True).get_future()
    found = first.then(lambda f: f.value()[0] + second.wait()[0]).wait()
    total = testing.total(size, (9,))
    testing.check_equal(
        found, total + testing.total(range(1, size + 1), (9,)), "a later call")
    group = dist.new_group()
    for _ in range(5):
        one = testing.values(rank, (9,))
        future = dist.all_reduce(one, async_op=True).get_future()
        for _ in range(3):
            future = future.then(lambda f: dist.all_reduce(
                f.wait()[0], group=group, async_op=True).get_future().wait())
        testing.check_equal(future.wait()[0], total * size**3, "nested")


def own_hook(rank, size):
    """A hook that chains futures, on buckets that are views of the grads."""
    def hook(group, bucket):
        work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
        return work.get_future().then(lambda f: f.value()[0].div_(size))

    model = DistributedDataParallel(Net(), gradient_as_bucket_view=True,
                                    bucket_cap_mb=0.001)
    model.register_comm_hook(dist.group.WORLD, hook)
    train(model, sgd(model), [batch(rank, step) for step in range(_STEPS)])
    check_same(model, reference(size), "a hook of one's own")


def same_everywhere(model, what):
    for name, tensor in model.state_dict().items():
        first = tensor.clone()
        dist.broadcast(first, 0)
        testing.check_equal(tensor, first, f"{what} {name}")


def uneven(rank, size):
    """join(): rank r has r + 2 batches."""
    model, plain = DistributedDataParallel(Net()), Net()
    with model.join():
        train(model, sgd(model), [batch(rank, s) for s in range(rank + 2)])
    optimizer = sgd(plain)
    for step in range(size + 1):
        optimizer.zero_grad()
        for other in range(size):
            if step < other + 2:
                (loss_of(plain, batch(other, step)) / size).backward()
        optimizer.step()
    check_same(model, plain, "uneven inputs")
    # The optimizer joins too; who has finished steps by no gradient of its own.
    model = DistributedDataParallel(Net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD,
                                        lr=0.1, momentum=0.9)
    with Join([model, optimizer]):
        train(model, optimizer, [batch(rank, s) for s in range(rank + 2)])
    same_everywhere(model.module, "joined with the optimizer")
    # Whoever wants an error instead gets one.
    model = DistributedDataParallel(Net())
    try:
        with model.join(throw_on_early_termination=True):
            train(model, sgd(model), [batch(rank, s) for s in range(rank + 2)])
        raise AssertionError("nothing was thrown")
    except RuntimeError as error:
        assert "exhausted" in str(error), error
    dist.barrier()


def sharded_optimizer(rank, size):
    mine = [batch(rank, step) for step in range(_STEPS)]

    def adam(model):
        return torch.optim.Adam(model.parameters(), lr=0.01)

    wanted = reference(size, make=adam)
    for settings in ({}, {"parameters_as_bucket_view": True}):
        model = DistributedDataParallel(Net())
        optimizer = ZeroRedundancyOptimizer(
            model.parameters(), torch.optim.Adam, lr=0.01, **settings)
        train(model, optimizer, mine)
        check_same(model, wanted, settings)
        optimizer.consolidate_state_dict(to=size - 1)
        if rank == size - 1:
            state = optimizer.state_dict()["state"]
            assert len(state) == len(list(wanted.parameters()))
    # One bucket: a callback's broadcasts and other buckets' reductions come in
    # no order.
    warnings.simplefilter("ignore", DeprecationWarning)
    for make in (ddp_zero_hook.hook_with_zero_step,
                 ddp_zero_hook.hook_with_zero_step_interleaved):
        model = DistributedDataParallel(Net(), gradient_as_bucket_view=True)
        optimizer = ZeroRedundancyOptimizer(
            model.parameters(), torch.optim.Adam, lr=0.01,
            overlap_with_ddp=True)
        model.register_comm_hook(
            None, make(default_hooks.allreduce_hook, model, optimizer))
        # The first two steps only order the buckets.
        for rows in [batch(rank, 7)] * 2 + mine:
            model.zero_grad()
            loss_of(model, rows).backward()
        loss_of(model, rows)  # waits for the last step's broadcasts
        check_same(model, wanted, make.__name__)


def averaged(rank, size):
    """Ranks train alone, and every second step they average."""
    model = Net()
    averager = averagers.PeriodicModelAverager(period=2, warmup_steps=0)
    optimizer = PostLocalSGDOptimizer(sgd(model), averager)
    train(model, optimizer, [batch(rank, step) for step in range(3)])
    copies = [Net() for _ in range(size)]
    optimizers = [sgd(one) for one in copies]
    for step in range(3):
        for other, (one, stepper) in enumerate(zip(copies, optimizers)):
            train(one, stepper, [batch(other, step)])
        if step % 2 == 0:
            with torch.no_grad():
                for same in zip(*[one.parameters() for one in copies]):
                    mean = sum(same) / size
                    for one in same:
                        one.copy_(mean)
    check_same(model, copies[rank], "averaged")


def refused(rank, size):
    del size
    layer = torch.nn.Linear(3, 3, bias=rank != 1)
    testing.check_refused(RuntimeError,
                          lambda: DistributedDataParallel(layer), "params")
    dist.barrier()


class Ddp(testing.RanksTest):

    def test_trains_as_one_process(self):
        self.check(variants, starts_alike, unused, accumulated, hooks,
                   callbacks, own_hook, uneven, sharded_optimizer, averaged,
                   refused, sizes=(3,))


if __name__ == "__main__":
    testing.main()
