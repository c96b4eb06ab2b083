# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Runs work so that nothing of it outlives it, whatever happens.

    code = sandbox.run(work)    # work() returns an exit code

Everything runs in a process, mount and network namespace of its own that no
file names. The kernel kills all processes of a process namespace with its
first one, and drops networks and mounts with their last process: so there is
no clean-up that could fail or be skipped, even by SIGKILL.

    this process     passes signals on, waits
      first process  process 1 of the namespace: reaps, passes signals on
        worker       runs work()

Inside, /proc shows these processes only, /dev/shm is empty, and SIGINT, SIGTERM
and SIGHUP become the exception Stopped, once.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys

# From a process in any of the work's namespaces: the folder that the worker
# sees as /dev/shm. It ends with the work.
SHARED = "/proc/1/root/dev/shm"

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GRACE_S = 15  # to end by itself after a signal

_CLONE_NEWNS = 0x00020000
_CLONE_NEWPID = 0x20000000
_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


class Stopped(Exception):
    """The user or the system wants the work to end."""

    def __init__(self, number):
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


def _call(function, *arguments):
    if function(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error,
                      "can't make namespaces: " + os.strerror(error))


def run(work):
    """Runs work() in the sandbox and returns its exit code. OSError where the
    kernel doesn't let us make namespaces."""
    _call(_libc.unshare, _CLONE_NEWPID)
    sys.stdout.flush()
    alive, held = os.pipe()  # The first process sees its end at our death.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    first = os.fork()
    if first == 0:
        os.close(held)
        _exit(lambda: _first_process(work, alive))
    code = _supervise(first)
    os.close(alive)
    os.close(held)
    return code


def _exit(function):
    """Ends this forked process with what the function returns."""
    code = 1
    try:
        code = function()
    except BrokenPipeError:
        pass  # Who read the output wants no more.
    except OSError as error:
        print("bin/nodes: %s" % error, file=sys.stderr)
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _on_signals(handler):
    for number in _SIGNALS:
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def _supervise(first):
    stopped = []

    def pass_on(number, _):
        # Whoever asks twice doesn't want to wait.
        os.kill(first, signal.SIGKILL if stopped else number)
        stopped.append(number)
        signal.alarm(_GRACE_S)

    signal.signal(signal.SIGALRM, lambda *_: os.kill(first, signal.SIGKILL))
    _on_signals(pass_on)
    # The kernel lets us have it once all processes of the namespace are gone.
    _, status = os.waitpid(first, 0)
    signal.alarm(0)
    if stopped:
        return 128 + stopped[0]
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _first_process(work, alive):
    _call(_libc.prctl, _PR_SET_PDEATHSIG, signal.SIGKILL)
    if select.select([alive], [], [], 0)[0]:
        return 1  # It died before the kernel knew.
    os.close(alive)
    os.setsid()  # The terminal's signals come through our parent only.
    _call(_libc.unshare, _CLONE_NEWNS | _CLONE_NEWNET)
    for mount in (["--make-rprivate", "/"], ["-t", "proc", "proc", "/proc"],
                  ["-t", "tmpfs", "tmpfs", "/dev/shm"]):
        subprocess.run(["mount", *mount], check=True)
    worker = os.fork()
    if worker == 0:
        _exit(lambda: _worker(work))
    _on_signals(lambda number, _: os.kill(worker, number))
    while True:
        pid, status = os.wait()
        if pid == worker:
            return os.waitstatus_to_exitcode(status) % 256


def _worker(work):
    def stop(number, _):
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(number)

    _on_signals(stop)
    try:
        return work()
    except Stopped as stopped:
        return stopped.exit_code
