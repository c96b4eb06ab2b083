# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""trnccl for PyTorch: a backend of torch.distributed.

Installed, it registers itself at `import torch`:

    import torch.distributed as dist
    dist.init_process_group("neuron")    # or "trnccl"

Nothing of it is loaded before a group is made.
"""

import datetime
import os
from typing import TYPE_CHECKING

from trnccl._autoload import autoload

__all__ = ["dump_flight_record", "grow_group", "join_group", "lost_ranks",
           "register", "set_launch_environment", "version"]

if TYPE_CHECKING:
    import torch.distributed as dist

autoload()


def register() -> None:
    """Registers the backends "trnccl" and, where it's ours, "neuron".

    `import torch` has done so already; this says why, if it couldn't.

    Raises:
        Exception: what kept it from it.
    """
    from trnccl import _backend

    _backend.register()


def dump_flight_record(file: str | os.PathLike[str] | None = None) -> bytes:
    """The last calls of all groups of this process, as a Python pickle.

    With `file`, it's written there too. Give each rank a file that ends with
    its number, and PyTorch's analyser takes them all:

        trnccl.dump_flight_record(f"/tmp/job/rank_{dist.get_rank()}")
        python -m torch.distributed.flight_recorder.fr_trace /tmp/job

    How many calls are kept is PyTorch's setting TORCH_FR_BUFFER_SIZE (2000).
    With TORCH_FR_DUMP_TEMP_FILE=/tmp/job/rank_ in the environment, each rank
    writes its own as soon as a call fails.

    Raises:
        OSError: the file can't be written.
    """
    from trnccl import _backend

    dump = _backend.extension().dump_flight_record()
    if file is not None:
        with open(file, "wb") as target:
            target.write(dump)
    return dump


def lost_ranks(
        error: BaseException, group: "dist.ProcessGroup | None" = None,
        patience: datetime.timedelta = datetime.timedelta(seconds=10)
) -> list[int]:
    """The ranks that a group goes on without, the same list on all the others.

    To be called by each of them when a call of the group has failed by `error`.
    Who doesn't come within `patience` is lost, and at once the rank that the
    error names, if nobody else is missing. Once a group; they agree by its
    store, which must be kept by a process that's still there.

        except dist.DistBackendError as error:
            group = dist.shrink_group(trnccl.lost_ranks(error, group), group)

    The ranks are numbered as in the group. The list is empty if all came.
    """
    from trnccl import _recovery

    return _recovery.agree(group, error, patience)


def grow_group(
        store: "dist.Store", newcomers: int = 1,
        patience: datetime.timedelta = datetime.timedelta(minutes=5)
) -> None:
    """Makes a new default group of the ranks of the old one and newcomers.

    Called by all ranks of the default group, while as many newcomers call
    join_group() by the same store. The old ranks keep their numbers, the
    newcomers follow. As the default group's, the other groups end as well: make
    them, and what was built on them, DDP say, anew.

        trnccl.grow_group(store)
        dist.broadcast_object_list(state, src=0)    # what newcomers lack

    The store must be kept by a process that's still there.

    Raises:
        DistBackendError: too few newcomers came within `patience`, and the
            groups are as they were; or one didn't stay until all had met.
    """
    from trnccl import _growth

    _growth.grow(store, newcomers, patience)


def join_group(
        store: "dist.Store",
        patience: datetime.timedelta = datetime.timedelta(minutes=5)
) -> None:
    """Makes this process a rank of the default group that calls grow_group().

    In place of init_process_group(): backend, timeout and rank are the group's.
    The store is that by which the group's ranks call grow_group().

    Raises:
        DistBackendError: no group took it in within `patience`.
    """
    from trnccl import _growth

    _growth.join(store, patience)


def set_launch_environment() -> None:
    """Sets what init_process_group reads, where torchrun hasn't.

    RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT,
    from what srun, mpirun or a Kubernetes job with indices gave this process;
    none that's set already, and nothing where there's no launcher.

        trnccl.set_launch_environment()
        dist.init_process_group("neuron")

    Raises:
        RuntimeError: the launcher doesn't say where rank 0 is.
    """
    from trnccl import _launch

    os.environ.update(_launch.find(os.environ))


def version() -> str:
    """The version of the installed package, "0.1.0"."""
    import importlib.metadata

    return importlib.metadata.version("trnccl")
