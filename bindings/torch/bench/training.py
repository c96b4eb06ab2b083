# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Steps of training, ours and Gloo's in turn, and what communication costs.

Two figures, since neither says all:
- exposed: a step's time beyond that of the same step without communication,
  that is, what training waits for. All end with a meeting of the ranks, so that
  what one computes longer than the other is in both. Without communication,
  DDP has a hook that leaves gradients as they are; FSDP2 runs on a backend that
  copies a rank's own part to where the others' belong.
- busy: how long calls were under way with all ranks in them, by the profiler's
  traces, whether or not computing hid it.
"""

import dataclasses
import os
from collections.abc import Callable

import models
import overlap
import torch
import torch.distributed as dist
from figures import Spread, spread_of, time_text
from ranks import GLOO, NOTHING, OURS, Ranks
from stopwatch import Stopwatch, Timed, ratio, take_turns
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function

Step = Callable[[], None]

_BLOCK_S = 0.2
_TRACED_STEPS = 9
# Two all-reduces: that of the linear layers can overlap the convolutions'.
_BUCKET_MB = 0.05


@dataclasses.dataclass(frozen=True)
class Backend:
    """What one backend's steps took on rank 0."""
    step_us: Spread
    exposed_us: Spread
    busy_us: Spread  # over steps
    hidden: Spread  # the share of it that backward passes hide
    trace: str      # rank 0's


@dataclasses.dataclass(frozen=True)
class Training:
    """One way of training, on both backends."""
    name: str
    without_us: Spread  # a step without communication
    ours: Backend
    gloo: Backend
    speedup: Spread  # of whole steps
    busy_ratio: float  # ours : Gloo's
    exposed_ratio: float

    def __str__(self) -> str:
        lines = ["%s: a step without communication takes %s us" % (
            self.name, time_text(self.without_us.median))]
        lines += ["  %-6s  step %s us, exposed communication %s us, calls "
                  "busy %s us, %.0f %% of that hidden by backward; %s" % (
                      name, time_text(one.step_us.median),
                      time_text(one.exposed_us.median),
                      time_text(one.busy_us.median),
                      100 * one.hidden.median, one.trace)
                  for name, one in (("trnccl", self.ours),
                                    ("Gloo", self.gloo))]
        lines.append("  ours : Gloo's: exposed %.2f, busy %.2f; steps are "
                     "%.2f times as fast (%.2f to %.2f)" % (
                         self.exposed_ratio, self.busy_ratio,
                         self.speedup.median, self.speedup.min,
                         self.speedup.max))
        return "\n".join(lines)


def measure(ranks: Ranks, rounds: int, folder: str) -> list[Training]:
    """DDP's and FSDP2's steps; traces go to the folder."""
    os.makedirs(folder, exist_ok=True)
    return [_measure("DDP", _ddp_step, ranks, rounds, folder),
            _measure("FSDP2", _fsdp_step, ranks, rounds, folder)]


def _ddp_step(ranks: Ranks, backend: str) -> Step:
    task = models.classifier(ranks.rank)
    # DDP can't do without futures, which the backend NOTHING lacks.
    silent = backend == NOTHING
    model = DistributedDataParallel(
        task.model, process_group=ranks.group(OURS if silent else backend),
        bucket_cap_mb=_BUCKET_MB)
    if silent:
        model.register_comm_hook(None, _leave)
    return _step(task, model)


def _leave(_: None, bucket: dist.GradBucket
           ) -> torch.futures.Future[torch.Tensor]:
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def _fsdp_step(ranks: Ranks, backend: str) -> Step:
    task = models.language_model(ranks.rank)
    mesh = DeviceMesh.from_group(ranks.group(backend), "cpu")
    for module in [*task.layers, task.model]:
        fully_shard(module, mesh=mesh)
    for module in task.model.modules():
        if isinstance(module, FSDPModule):
            # As the example does.
            module.set_allocate_memory_from_process_group_for_comm(
                backend == OURS)
    # The next layer's parameters come while this one computes.
    task.model._set_unshard_async_op(True)
    return _step(task, task.model)


def _step(task: models.Task, model: nn.Module) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        loss = task.loss(model)
        with record_function(overlap.BACKWARD):
            loss.backward()
        optimizer.step()
    return step


def _then_meet(step: Step, ranks: Ranks) -> Step:
    def both() -> None:
        step()
        ranks.meet()
    return both


def _measure(name: str, make_step: Callable[[Ranks, str], Step],
             ranks: Ranks, rounds: int, folder: str) -> Training:
    steps = {backend: make_step(ranks, backend)
             for backend in (OURS, GLOO, NOTHING)}
    watches = {backend: Stopwatch(ranks, Timed(_then_meet(step, ranks)),
                                  _BLOCK_S)
               for backend, step in steps.items()}
    take_turns(list(watches.values()), rounds)
    found = []
    for backend in (OURS, GLOO):
        path = os.path.join(folder, "%s-%s-%d.json" % (
            name.lower(), backend, ranks.rank))
        found.append(_of_backend(
            watches[backend], watches[NOTHING],
            _trace(ranks, backend, steps[backend], path), path))
    ours, gloo = found
    return Training(
        name, watches[NOTHING].time_us(), ours, gloo,
        speedup=ratio(watches[GLOO], watches[OURS]),
        busy_ratio=ours.busy_us.median / gloo.busy_us.median,
        exposed_ratio=ours.exposed_us.median / gloo.exposed_us.median)


def _trace(ranks: Ranks, backend: str, step: Step,
           path: str) -> list[overlap.Communication]:
    """Of some steps; each rank writes its file."""
    ranks.meet()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(_TRACED_STEPS):
            with record_function(overlap.STEP):
                step()
    profiler.export_chrome_trace(path)
    events = overlap.read(path)
    calls = ranks.collect(overlap.calls_of(events, backend))
    mine = calls.pop(ranks.rank)
    return overlap.by_step(events, [mine, *calls])


def _of_backend(watch: Stopwatch, without: Stopwatch,
                steps: list[overlap.Communication], path: str) -> Backend:
    exposed = spread_of((one - other) * 1e6 for one, other in
                        zip(watch.seconds, without.seconds))
    return Backend(watch.time_us(), exposed,
                   spread_of(step.busy_us for step in steps),
                   spread_of(step.hidden for step in steps), path)
