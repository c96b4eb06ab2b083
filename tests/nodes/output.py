# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Shows what ranks print, whole lines at a time, and waits for their launchers.

    output = Output(ranks, style)    # "auto", "rank" or "raw"
    launchers = [output.start(mpirun + output.wrap(program))]
    code = wait(launchers, output)

Each rank writes into pipes of its own, whichever launcher started it. With
"raw" the ranks write to their launchers, and these to the terminal.
"""

import os
import selectors
import signal
import subprocess
import sys
import time

import sandbox

_PEERS_GRACE_S = 5  # for launchers once another has failed
_STOP_GRACE_S = 3  # for launchers told to stop

# Open MPI's, where the agent starts faster than it looks. It means nothing.
_NOISE = b"plm:rsh: Warning: setpgid("

# Finds its rank as Open MPI and torchrun tell it.
_WRAPPER = """rank="${OMPI_COMM_WORLD_RANK:-$RANK}"
exec "$@" >"%(folder)s/out.$rank" 2>"%(folder)s/err.$rank"
"""


class _Stream:
    """Lines of standard output or error of one rank, or of launchers."""

    def __init__(self, path, prefix, to):
        os.mkfifo(path)
        # Also for writing: so it never ends while a rank has yet to open it.
        self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._path = path
        self._prefix = prefix
        self._to = to
        self._rest = b""

    def blocking(self):
        """The end to write to, as programs expect it."""
        return os.open(self._path, os.O_WRONLY)

    def read(self):
        try:
            data = os.read(self.fd, 1 << 16)
        except BlockingIOError:
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._show(lines)
        return True

    def finish(self):
        while self.read():
            pass
        if self._rest:
            self._show([self._rest])

    def _show(self, lines):
        if lines:
            self._to.write(b"".join(self._prefix + line + b"\n"
                                    for line in lines if _NOISE not in line))
            self._to.flush()


class Output:
    """The pipes of all ranks, and one for errors of launchers."""

    def __init__(self, ranks, style):
        self.streams = []
        self._errors = None
        if style == "raw":
            return
        for rank in range(ranks):
            prefix = b"[rank %d] " % rank
            if style == "auto" and rank == 0:
                prefix = b""
            self._add("out.%d" % rank, prefix, sys.stdout)
            self._add("err.%d" % rank, prefix, sys.stderr)
        self._errors = self._add("errors", b"", sys.stderr)

    def _add(self, name, prefix, to):
        stream = _Stream("/dev/shm/" + name, prefix, to.buffer)
        self.streams.append(stream)
        return stream

    def start(self, command):
        """Starts a launcher."""
        return subprocess.Popen(command,
                                stderr=self._errors and self._errors.blocking())

    def wrap(self, program):
        """The program, writing into the pipes of its rank."""
        if not self.streams:
            return program
        return ["sh", "-c", _WRAPPER % {"folder": sandbox.SHARED}, "sh"] + \
            program

    def finish(self):
        for stream in self.streams:
            stream.finish()


class _Launchers:
    """Waits for launchers, and stops those that go on after one failed."""

    def __init__(self, processes):
        self.code = 0
        self._left = {os.pidfd_open(p.pid): p for p in processes}
        self._deadline = None
        self._signals = [signal.SIGTERM, signal.SIGKILL]

    @property
    def fds(self):
        return list(self._left)

    def ended(self, fd):
        code = self._left.pop(fd).wait()
        os.close(fd)
        if code != 0 and self.code == 0:
            self.code = code if code > 0 else 128 - code
            self._deadline = time.monotonic() + _PEERS_GRACE_S

    def stop(self):
        self._deadline = time.monotonic()
        self.check()

    def check(self):
        """Signals what's overdue; how long to wait, None for ever."""
        if self._deadline is None or not self._signals:
            return None
        if time.monotonic() >= self._deadline:
            number = self._signals.pop(0)
            for process in self._left.values():
                process.send_signal(number)
            self._deadline = time.monotonic() + _STOP_GRACE_S
        return max(0, self._deadline - time.monotonic())


def wait(processes, output):
    """Shows output until all launchers have ended; the code of the first that
    failed, 0 if none did. Passes sandbox.Stopped on, once they've stopped."""
    launchers = _Launchers(processes)
    with selectors.DefaultSelector() as selector:
        for stream in output.streams:
            selector.register(stream.fd, selectors.EVENT_READ, stream.read)
        for fd in launchers.fds:
            selector.register(fd, selectors.EVENT_READ)
        try:
            _drain(selector, launchers)
        except sandbox.Stopped:
            launchers.stop()
            _drain(selector, launchers)
            raise
        finally:
            output.finish()
    return launchers.code


def _drain(selector, launchers):
    while launchers.fds:
        for key, _ in selector.select(launchers.check()):
            if key.data:
                key.data()
            else:
                selector.unregister(key.fd)
                launchers.ended(key.fd)
