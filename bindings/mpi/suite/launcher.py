# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Runs one benchmark under mpirun, and leaves no process behind."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator

from plan import Run

TIMEOUT_S = 600
# What mpirun is given to end its ranks by itself.
GRACE_S = 10


def command(run: Run, binaries: str, cores: int) -> list[str]:
    """The command that a user would type."""
    ranks = run.key.ranks
    place = ["--bind-to", "core"] if ranks <= cores else ["--oversubscribe"]
    return ["mpirun", "-n", str(ranks), *place,
            os.path.join(binaries, run.key.benchmark + "_perf"), *run.flags()]


def execute(words: list[str], log: str) -> int | None:
    """The exit code; None after too long a time. All output goes to `log`."""
    # Should this process be killed, mpirun still ends, and with it its ranks.
    guarded = ["setpriv", "--pdeathsig", "TERM", *words]
    with open(log, "w", encoding="utf-8") as file:
        process = subprocess.Popen(
            guarded, env=_environment(), stdin=subprocess.DEVNULL,
            stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        return process.wait(TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _end(process)


def _environment() -> dict[str, str]:
    # Open MPI refuses to run as root unless told twice.
    return {**{name: value for name, value in os.environ.items()
               if not name.startswith("NCCL_TESTS_")},
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    # Each rank has a process group of its own, but all are of one session.
    for pid in _session(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _session(leader: int) -> Iterator[int]:
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % name, encoding="utf-8") as file:
                # After the name: state, parent, group, session.
                session = file.read().rpartition(")")[2].split()[3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(session) == leader:
            yield int(name)
