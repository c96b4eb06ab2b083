# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Ranks that srun, mpirun or Kubernetes started, as init_process_group wants
them: in the variables that torchrun sets.

bindings/mpi/launch.cc knows the same launchers.
"""

import dataclasses
import re
from collections.abc import Mapping

# As in bindings/mpi/rendezvous.cc: below those that the kernel hands out.
_FIRST_PORT, _PORTS = 20000, 10000
_USUAL_PORT = 29500


@dataclasses.dataclass(frozen=True)
class _Launcher:
    """The names of a launcher's variables; an empty one: there's none."""
    rank: str
    size: str
    local_rank: str = ""
    local_size: str = ""


# The first whose rank and size are there counts.
_LAUNCHERS = [
    _Launcher("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
              "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    _Launcher("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    _Launcher("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
    _Launcher("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
    _Launcher("JOB_COMPLETION_INDEX", "WORLD_SIZE"),
]


def find(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that init_process_group lacks, and their values.

    Nothing where torchrun, or whoever sets RANK itself, has started this rank,
    or nobody has.

    Raises:
        RuntimeError: the launcher doesn't say where rank 0 is.
    """
    if "RANK" in environment:
        return {}
    for launcher in _LAUNCHERS:
        if launcher.rank in environment and launcher.size in environment:
            break
    else:
        return {}
    found = {"RANK": environment[launcher.rank],
             "WORLD_SIZE": environment[launcher.size],
             "LOCAL_RANK": environment.get(launcher.local_rank, "0"),
             "LOCAL_WORLD_SIZE": environment.get(
                 launcher.local_size, _tasks_here(environment)),
             "MASTER_PORT": _port(environment)}
    alone = found["LOCAL_WORLD_SIZE"] == found["WORLD_SIZE"]
    found["MASTER_ADDR"] = _address(environment, alone)
    return {name: value for name, value in found.items()
            if name not in environment}


def _address(environment: Mapping[str, str], alone: bool) -> str:
    if "MASTER_ADDR" in environment:
        return environment["MASTER_ADDR"]
    if "SLURM_STEP_NODELIST" in environment:
        return first_host(environment["SLURM_STEP_NODELIST"])
    if alone:
        return "127.0.0.1"
    raise RuntimeError(
        "trnccl.set_launch_environment: this launcher doesn't tell which host "
        "rank 0 is on: set MASTER_ADDR to it for all ranks (with Open MPI: "
        "mpirun -x MASTER_ADDR=HOST ...), or, in a Slurm job, start them by "
        "srun")


def _port(environment: Mapping[str, str]) -> str:
    job = environment.get("SLURM_JOB_ID", "")
    return str(_FIRST_PORT + int(job) % _PORTS if job.isdigit()
               else _USUAL_PORT)


def _tasks_here(environment: Mapping[str, str]) -> str:
    """Of Slurm's "2(x3),1", one number a node, this node's; 1 without it."""
    numbers: list[str] = []
    for part in environment.get("SLURM_STEP_TASKS_PER_NODE", "").split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if match:
            numbers += [match[1]] * int(match[2] or 1)
    node = environment.get("SLURM_NODEID", "")
    return numbers[int(node)] if node.isdigit() and \
        int(node) < len(numbers) else "1"


def first_host(hosts: str) -> str:
    """The first of Slurm's host list: "trn001" of "trn[001-004,7],head"."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\]?)*", hosts)
    assert first is not None  # It matches the empty text as well.
    return re.sub(r"\[([^,\-\]]*)[^\]]*\]?", r"\1", first[0])
