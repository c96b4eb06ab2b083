# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""trnccl for PyTorch: a backend of torch.distributed.

Installed, it registers itself at `import torch`:

    import torch.distributed as dist
    dist.init_process_group("neuron")    # or "trnccl"

Nothing of it is loaded before a group is made.
"""

import os
import re

from trnccl._autoload import autoload

__all__ = ["dump_flight_record", "origin_of", "register",
           "set_launch_environment", "version"]

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


def origin_of(error: BaseException) -> int | None:
    """The rank that a call's error began with, in the numbers of its group.

    None if the error doesn't tell. To go on without a rank that was lost:

        except dist.DistBackendError as error:
            if (lost := trnccl.origin_of(error)) is None:
                raise
            group = dist.shrink_group([lost], group)
    """
    found = re.search(r"origin: rank (\d+)", str(error))
    return None if found is None else int(found[1])


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
