# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""The part of trnccl that's written in C++."""

import datetime

from torch.distributed import Store
from torch.distributed.distributed_c10d import Backend

class Options(Backend.Options):
    """How a group is made. Copies (copy.copy, copy.deepcopy) are apart."""

    profiled_as: str
    """What profiles call the backend: "neuron" of "neuron:all_reduce"."""
    group_desc: str

    def __init__(self, backend: str = "neuron",
                 timeout: datetime.timedelta = ...) -> None: ...

class ProcessGroupNeuron(Backend):
    """A group of processes: `group._get_backend(torch.device("cpu"))`."""

    @property
    def options(self) -> Options: ...
    def _set_default_timeout(self, timeout: datetime.timedelta) -> None:
        """As Gloo's and NCCL's groups have it."""

    def cancel_coalescing(self) -> None:
        """Drops the calls of an open block of coalesced ones, if there is."""

    def dump_calls(self) -> str:
        """The communicator's last calls as JSON: algorithms, progress, ages.

        In the form of PyTorch's flight recorder, with fields of our own.
        """

    def suspend(self) -> None:
        """Gives back the group's memory and connections. All ranks do.

        Waits for calls under way. Until resume(), calls raise RuntimeError.
        """

    def resume(self) -> None:
        """Makes them anew. All ranks do."""

    def memory_stats(self) -> dict[str, int]:
        """The process's shared memory for tensors, in bytes.

        "used_bytes" by tensors of allocate_tensor(), and "kept_bytes" for the
        next such tensors.
        """

def dump_flight_record() -> bytes:
    """See trnccl.dump_flight_record()."""

def make(store: Store, rank: int, size: int,
         options: Options) -> ProcessGroupNeuron:
    """Makes this rank's part of a group; all ranks do, by the same store.

    Raises:
        DistBackendError: a rank didn't come within the options' timeout.
    """
