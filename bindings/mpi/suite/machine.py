# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""The facts of the machine that belong beside its figures."""

import datetime
import os
import platform
import re
import subprocess
import time
from typing import Any

# Settings that change what is measured.
_SETTINGS = ("TRNCCL_", "OMPI_MCA_")
_WATCH_S = 1.0


def cpus_of_cores() -> list[int]:
    """A logical CPU of each core that this process may use."""
    first: dict[str, int] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        path = "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list"
        try:
            with open(path % cpu, encoding="ascii") as file:
                first.setdefault(file.read(), cpu)
        except OSError:
            first[str(cpu)] = cpu
    return list(first.values())


def cores() -> int:
    """Cores that this process may use; two threads of one count once."""
    return len(cpus_of_cores())


def facts(root: str) -> dict[str, Any]:
    """Of the machine and the source tree `root`."""
    return {
        "cpu": _cpu(),
        "cores": cores(),
        "logical_cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") *
                            os.sysconf("SC_PHYS_PAGES") / (1 << 30)),
        "kernel": platform.release(),
        "date": datetime.datetime.now().astimezone().isoformat(
            timespec="minutes"),
        "revision": _revision(root),
        "busy_cpus": round(_busy_cpus(), 2),
        "settings": {name: value for name, value in os.environ.items()
                     if name.startswith(_SETTINGS)},
    }


def _busy_cpus() -> float:
    """How many processors other work keeps busy just now."""
    def ticks() -> tuple[int, int]:
        with open("/proc/stat", encoding="ascii") as file:
            fields = [int(field) for field in file.readline().split()[1:9]]
        return sum(fields), fields[3] + fields[4]  # idle, waiting for I/O
    before = ticks()
    time.sleep(_WATCH_S)
    total, idle = (b - a for a, b in zip(before, ticks()))
    return (os.cpu_count() or 1) * (total - idle) / max(total, 1)


def open_mpi_version() -> str | None:
    """None if there's no mpirun, or if it isn't Open MPI's."""
    try:
        text = _output("mpirun", "--version")
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r"Open MPI\D*([0-9.]+)", text)
    return found.group(1) if found else None


def _cpu() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        found = re.search(r"^model name\s*: (.*)$", file.read(), re.MULTILINE)
    return found.group(1) if found else platform.machine()


def _revision(root: str) -> str:
    try:
        revision = _output("git", "-C", root, "rev-parse", "--short=12",
                           "HEAD").strip()
        changed = _output("git", "-C", root, "status", "--porcelain",
                          "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return revision + (" with changes" if changed else "")


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, text=True,
                          stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL).stdout
