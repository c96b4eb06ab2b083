#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Models split among ranks: tensor, context and pipeline parallel."""

import testing  # First: it finds Python and the package.

import copy

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import (PipelineStage, Schedule1F1B,
                                          ScheduleGPipe,
                                          ScheduleInterleaved1F1B)
from torch.distributed.tensor import (DTensor, Replicate, Shard,
                                      distribute_tensor)
from torch.distributed.tensor.experimental._context_parallel import _attention
from torch.distributed.tensor.parallel import (
    ColwiseParallel, RowwiseParallel, SequenceParallel, loss_parallel,
    parallelize_module)

_WIDTH = 16
_HEADS = 4
_WORDS = 20
_LENGTH = 8


class Block(torch.nn.Module):

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(_WIDTH)
        self.query = torch.nn.Linear(_WIDTH, _WIDTH)
        self.key = torch.nn.Linear(_WIDTH, _WIDTH)
        self.value = torch.nn.Linear(_WIDTH, _WIDTH)
        self.project = torch.nn.Linear(_WIDTH, _WIDTH)
        self.norm2 = torch.nn.LayerNorm(_WIDTH)
        self.up = torch.nn.Linear(_WIDTH, 2 * _WIDTH)
        self.down = torch.nn.Linear(2 * _WIDTH, _WIDTH)

    def forward(self, hidden):
        normed = self.norm(hidden)
        # As many heads as this rank has.
        heads = [layer(normed).unflatten(-1, (-1, _WIDTH // _HEADS)).transpose(
            1, 2) for layer in (self.query, self.key, self.value)]
        mixed = torch.nn.functional.softmax(
            heads[0] @ heads[1].transpose(-1, -2) / 2, -1) @ heads[2]
        hidden = hidden + self.project(mixed.transpose(1, 2).flatten(2))
        return hidden + self.down(torch.relu(self.up(self.norm2(hidden))))


class Language(torch.nn.Module):

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.words = torch.nn.Embedding(_WORDS, _WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(2))
        self.norm = torch.nn.LayerNorm(_WIDTH)
        self.out = torch.nn.Linear(_WIDTH, _WORDS, bias=False)
        self.double()

    def forward(self, words):
        hidden = self.words(words)
        for block in self.blocks:
            hidden = block(hidden)
        return self.out(self.norm(hidden))


_PLAIN = {"query": ColwiseParallel(), "key": ColwiseParallel(),
          "value": ColwiseParallel(), "project": RowwiseParallel(),
          "up": ColwiseParallel(), "down": RowwiseParallel()}


def tensor_parallel(model, mesh):
    for block in model.blocks:
        parallelize_module(block, mesh, _PLAIN)
    return parallelize_module(
        model, mesh, {"words": RowwiseParallel(input_layouts=Replicate()),
                      "out": ColwiseParallel(output_layouts=Replicate())})


def sequence_parallel(model, mesh):
    """Between the layers, each rank has a part of the sequence."""
    scatter = RowwiseParallel(output_layouts=Shard(1))
    for block in model.blocks:
        parallelize_module(block, mesh, {
            "norm": SequenceParallel(), "norm2": SequenceParallel(),
            "project": scatter, "down": scatter,
            **{name: ColwiseParallel(input_layouts=Shard(1))
               for name in ("query", "key", "value", "up")}})
    return parallelize_module(model, mesh, {
        "words": RowwiseParallel(input_layouts=Replicate(),
                                 output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "out": ColwiseParallel(input_layouts=Shard(1),
                               output_layouts=Replicate())})


def sentences(seed, count=4):
    torch.manual_seed(seed)
    return torch.randint(_WORDS, (count, _LENGTH + 1))


def loss_of(model, text):
    guess = model(text[:, :-1])
    return torch.nn.functional.cross_entropy(
        guess.flatten(0, 1), text[:, 1:].flatten())


def train(model, texts):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for text in texts:
        optimizer.zero_grad()
        loss_of(model, text).backward()
        optimizer.step()


def check_same(found, wanted, what):
    for (name, one), other in zip(found.named_parameters(),
                                  wanted.parameters()):
        whole = one.full_tensor() if isinstance(one, DTensor) else one
        torch.testing.assert_close(whole, other,
                                   msg=lambda text: f"{what} {name}: {text}")


def splits_tensors(rank, size):
    del rank
    mesh = init_device_mesh("cpu", (size,))
    texts = [sentences(s) for s in range(3)]
    wanted = Language()
    train(wanted, texts)
    for parallelize in (tensor_parallel, sequence_parallel):
        model = parallelize(Language(), mesh)
        train(model, texts)
        check_same(model, wanted, parallelize.__name__)


def splits_the_loss(rank, size):
    """Logits that stay split by words."""
    del rank
    mesh = init_device_mesh("cpu", (size,))
    torch.manual_seed(1)
    plain = torch.randn(6, _WORDS, dtype=torch.float64, requires_grad=True)
    labels = torch.arange(6)
    wanted = torch.nn.functional.cross_entropy(plain, labels)
    wanted.backward()
    logits = distribute_tensor(plain.detach(), mesh,
                               [Shard(1)]).requires_grad_()
    with loss_parallel():
        loss = torch.nn.functional.cross_entropy(logits, labels)
        loss.backward()
    torch.testing.assert_close(loss.full_tensor(), wanted)
    torch.testing.assert_close(logits.grad.full_tensor(), plain.grad)


def splits_both_ways(rank, size):
    """Tensor parallel beneath, FSDP above; and FSDP in two dimensions."""
    for shape, names in (((2, size // 2), ("data", "tensor")),
                         ((1, 2, size // 2), ("replicate", "data", "tensor"))):
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
        batch = mesh["data"].get_local_rank()
        texts = [sentences(s, 4) for s in range(3)]
        wanted = Language()
        train(wanted, texts)
        for parallelize in (tensor_parallel, sequence_parallel):
            model = parallelize(Language(), mesh["tensor"])
            above = mesh[names[:-1]] if len(names) > 2 else mesh["data"]
            for block in model.blocks:
                fully_shard(block, mesh=above)
            fully_shard(model, mesh=above)
            train(model, [text.chunk(2)[batch] for text in texts])
            check_same(model, wanted, (parallelize.__name__, shape))


def flash(query, key, value, is_causal, **kwargs):
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, is_causal=is_causal, **kwargs)


def flash_backward(query, key, value, out, logsumexp, is_causal, grad_out):
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad_out, query, key, value, out, logsumexp, 0.0, is_causal)


def splits_context(rank, size):
    """Ring attention, by the parts that need no kernel of an accelerator."""
    mesh = init_device_mesh("cpu", (size,))
    torch.manual_seed(4)
    whole = [torch.randn(2, 3, 16, 8, requires_grad=True) for _ in range(3)]
    wanted = torch.nn.functional.scaled_dot_product_attention(
        *whole, is_causal=True)
    torch.manual_seed(5)
    gradient = torch.randn_like(wanted)
    wanted.backward(gradient)
    _attention._cp_options.enable_load_balance = False
    for method in ("alltoall", "allgather"):
        _attention.set_rotate_method(method)
        query, key, value = [t.detach().chunk(size, 2)[rank] for t in whole]
        out, weights, *_ = _attention._templated_ring_attention(
            dist.group.WORLD, 2, flash, query, key, value, is_causal=True)
        grads = _attention._templated_ring_attention_backward(
            dist.group.WORLD, 2, flash_backward,
            gradient.chunk(size, 2)[rank].contiguous(), "grad_out", query, key,
            value, out, weights, is_causal=True)
        for part, all_of_it in zip(grads, whole):
            torch.testing.assert_close(
                part, all_of_it.grad.chunk(size, 2)[rank], msg=method)
        found, = _attention.context_parallel_unshard(mesh, [out], [2])
        torch.testing.assert_close(found, wanted, msg=method)


class Stage(torch.nn.Module):

    def __init__(self, index):
        super().__init__()
        torch.manual_seed(60 + index)
        self.layer = torch.nn.Linear(12, 12).double()

    def forward(self, rows):
        return self.layer(rows).tanh()


def mean_square(found, wanted):
    return (found - wanted).pow(2).mean()


def pipelines(rank, size):
    for kind, per_rank in ((ScheduleGPipe, 1), (Schedule1F1B, 1),
                           (ScheduleInterleaved1F1B, 2)):
        total = size * per_rank
        modules = [Stage(i) for i in range(total)]
        torch.manual_seed(8)
        rows, goal = torch.randn(2, 16, 12, dtype=torch.float64)
        wanted = copy.deepcopy(torch.nn.Sequential(*modules))
        loss = mean_square(wanted(rows), goal)
        loss.backward()
        stages = [PipelineStage(modules[i], i, total, torch.device("cpu"))
                  for i in range(rank, total, size)]
        schedule = kind(stages if per_rank > 1 else stages[0],
                        n_microbatches=8, loss_fn=mean_square)
        losses = []
        for _ in range(2):
            for stage in stages:
                stage.submod.zero_grad()
            losses = []
            if rank == 0:
                schedule.step(rows)
            elif rank == size - 1:
                schedule.step(target=goal, losses=losses)
            else:
                schedule.step()
        for stage in stages:
            index = stage.stage_index
            for one, other in zip(stage.submod.parameters(),
                                  wanted[index].parameters()):
                torch.testing.assert_close(one.grad, other.grad,
                                           msg=f"{kind.__name__} {index}")
        if rank == size - 1:
            torch.testing.assert_close(torch.stack(losses).mean(), loss)


class Parallel(testing.RanksTest):

    def test_computes_what_one_process_does(self):
        self.check(splits_tensors, splits_the_loss, splits_both_ways,
                   splits_context, pipelines, sizes=(4,))


if __name__ == "__main__":
    testing.main()
