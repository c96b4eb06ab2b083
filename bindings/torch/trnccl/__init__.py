# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""trnccl for PyTorch: a backend of torch.distributed.

Installed, it registers itself at `import torch`:

    import torch.distributed as dist
    dist.init_process_group("neuron")    # or "trnccl"

Nothing of it is loaded before a group is made.
"""

from trnccl._backend import register
from trnccl._record import dump_flight_record

__all__ = ["dump_flight_record", "register", "version"]

register()


def version() -> str:
    """The version of the installed package, "0.1.0"."""
    import importlib.metadata

    return importlib.metadata.version("trnccl")
