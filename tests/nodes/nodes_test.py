#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""bin/nodes: what ranks find, what links are like, and that nothing stays.

Needs root. No time is judged beyond its order of magnitude.
"""

import contextlib
import glob
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
REAL = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(REAL, ".."))
import junit  # noqa: E402

COMMAND = [sys.executable, os.path.join(REAL, "nodes.py")]
VENV = os.path.join(REAL, "../../.venv/bin/torchrun")
TIMEOUT_S = 120
NAMESPACES = subprocess.run(
    ["unshare", "--net", "--pid", "--fork", "true"],
    stderr=subprocess.DEVNULL, check=False).returncode == 0

# Defines peers(): a TCP connection between ranks 0 and 1, None elsewhere.
PEERS = """
import os, socket, sys, time
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
addresses = os.environ["NODES_ADDRESSES"].split(",")
family = socket.AF_INET6 if ":" in addresses[0] else socket.AF_INET

def connect():
    while True:
        try:
            return socket.create_connection((addresses[0], 7070))
        except ConnectionRefusedError:
            time.sleep(0.01)

def peers():
    if rank == 0:
        with socket.create_server((addresses[0], 7070), family=family) as all:
            peer = all.accept()[0]
    elif rank == 1:
        peer = connect()
    else:
        return None
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer

def receive(peer, size):
    while size > 0:
        got = len(peer.recv(min(size, 1 << 20)))
        assert got > 0
        size -= got
"""


def python(text):
    return ["python3", "-u", "-c", PEERS + textwrap.dedent(text)]


def environment():
    # Open MPI gives ranks a second to die, several times.
    return dict(os.environ, NODES_RELAY=os.path.join(HERE, "relay"),
                OMPI_MCA_odls_base_sigkill_timeout="0")


def start(*arguments):
    return subprocess.Popen(COMMAND + list(arguments), env=environment(),
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def processes_in(namespaces):
    """Processes whose network namespace is one of these."""
    found = []
    for link in glob.glob("/proc/[0-9]*/ns/net"):
        with contextlib.suppress(OSError):
            if os.readlink(link) in namespaces:
                found.append(link)
    return found


def machine():
    """What the machine's own network and temporary files look like."""
    tables = [subprocess.run(["ip", "-o", *what], text=True, check=True,
                             stdout=subprocess.PIPE).stdout
              for what in (["link"], ["-4", "address"], ["route"])]
    return [re.sub(r"\d+sec", "", table) for table in tables] + \
        [sorted(glob.glob("/run/netns/*") + glob.glob("/tmp/ompi.node*"))]


@unittest.skipUnless(NAMESPACES, "needs root and leave to make namespaces")
class Case(unittest.TestCase):
    maxDiff = None

    def nodes(self, *arguments, code=0):
        """Runs to the end; standard output and error."""
        run = start(*arguments)
        out, err = run.communicate(timeout=TIMEOUT_S)
        self.assertEqual(run.returncode, code, out + err)
        return out, err

    def lines(self, *arguments):
        return sorted(self.nodes(*arguments)[0].splitlines())


class Ranks(Case):

    def test_find_nodes_of_their_own(self):
        lines = self.lines("-n", "2", "--output", "rank", *python("""
            open("/dev/shm/mark", "x")
            print(socket.gethostname(), os.environ["TRNCCL_HOST_ID"],
                  sorted(os.listdir("/sys/class/net")),
                  os.readlink("/proc/self/ns/net"),
                  sorted(os.sched_getaffinity(0)))
        """))
        words = [line.split()[2:] for line in lines]
        self.assertEqual([w[:4] for w in words], [
            ["node0", "node0", "['eth0',", "'lo']"],
            ["node1", "node1", "['eth0',", "'lo']"]])
        self.assertNotEqual(words[0][4], words[1][4])
        if len(os.sched_getaffinity(0)) > 1:
            self.assertNotEqual(words[0][5], words[1][5])

    def test_are_numbered_node_by_node(self):
        self.assertEqual(
            self.lines("-n", "3", "-p", "2", "--output", "rank", "hostname"),
            ["[rank %d] node%d" % (rank, rank // 2) for rank in range(6)])

    def test_reach_each_other(self):
        for shape in (["-n", "2"], ["-n", "3"], ["-n", "2", "--ipv6"],
                      ["-n", "2", "--delay", "1ms"],
                      ["-n", "3", "--ipv6", "--delay", "1ms"]):
            with self.subTest(shape):
                out, _ = self.nodes(*shape, *python("""
                    peer = peers()
                    if rank == 0:
                        peer.sendall(b"!" * 1000000)
                    if rank == 1:
                        receive(peer, 1000000)
                        print("got it from", peer.getpeername()[0])
                """))
                self.assertRegex(out, "got it from [0-9a-f.:]+1\n")

    def test_have_an_interface_a_rail(self):
        lines = self.lines("-n", "2", "--rails", "2", "--output", "rank",
                           "ip", "-4", "-o", "address", "show", "scope",
                           "global")
        self.assertEqual(
            [re.sub(r".*(rank \d).* (eth\d) .*inet (\S+) .*", r"\1 \2 \3",
                    line) for line in lines],
            ["rank 0 eth0 10.77.0.1/24", "rank 0 eth1 10.77.1.1/24",
             "rank 1 eth0 10.77.0.2/24", "rank 1 eth1 10.77.1.2/24"])

    def test_get_their_exit_code_through(self):
        out, err = self.nodes("-n", "2", "sh", "-c", "echo bad >&2; exit 42",
                              code=42)
        self.assertRegex(err, r"(?m)^(\[rank 1\] )?bad$")
        self.assertEqual(out, "")

    def test_that_cannot_start_say_so(self):
        _, err = self.nodes("-n", "2", "no-such-program", code=127)
        self.assertIn("no-such-program: not found", err)

    @unittest.skipUnless(os.path.exists(VENV), "no .venv: run bin/setup")
    def test_of_torchrun_are_numbered_node_by_node(self):
        self.assertEqual(
            self.lines("-n", "2", "-p", "2", "--torchrun", "--output", "rank",
                       "sh", "-c", "echo $RANK of $WORLD_SIZE on $(hostname)"),
            ["[rank %d] %d of 4 on node%d" % (rank, rank, rank // 2)
             for rank in range(4)])

    @unittest.skipUnless(os.path.exists(VENV), "no .venv: run bin/setup")
    def test_of_torchrun_fail_the_run(self):
        self.nodes("-n", "2", "--torchrun", "sh", "-c", "exit $RANK", code=1)


class Output(Case):
    PROGRAM = ["sh", "-c", "echo one; printf two"]

    def test_of_rank_0_stays_as_it_is(self):
        self.assertEqual(self.lines("-n", "2", *self.PROGRAM),
                         ["[rank 1] one", "[rank 1] two", "one", "two"])

    def test_can_name_every_rank_or_none(self):
        self.assertEqual(
            self.lines("-n", "2", "--output", "rank", *self.PROGRAM),
            ["[rank 0] one", "[rank 0] two", "[rank 1] one", "[rank 1] two"])
        out, _ = self.nodes("-n", "1", "--output", "raw", *self.PROGRAM)
        self.assertEqual(out, "one\ntwo")

    def test_comes_whole_however_much_it_is(self):
        self.assertEqual(
            self.lines("-n", "2", "sh", "-c", "seq -w 100000"),
            sorted(prefix + "%06d" % i for i in range(1, 100001)
                   for prefix in ("", "[rank 1] ")))


class Links(Case):

    def seconds(self, *arguments, program):
        out, _ = self.nodes(*arguments, *python(program))
        return float(out.removeprefix("[rank 1] "))

    def stream_s(self, *shape):
        """How long 2.5 MB take."""
        return self.seconds("-n", "2", *shape, program="""
            peer, begin = peers(), time.monotonic()
            if rank == 0:
                peer.sendall(b"!" * 2500000)
                receive(peer, 1)
            else:
                receive(peer, 2500000)
                peer.sendall(b"!")
                print(time.monotonic() - begin)
        """)

    def test_keep_to_their_rate(self):
        for shape in ([], ["--delay", "100us"]):
            with self.subTest(shape):
                took = self.stream_s("--rate", "20mbit", *shape)
                self.assertGreater(took, 0.5)
                self.assertLess(took, 10)

    def test_delay_each_way(self):
        trip = self.seconds("-n", "2", "--delay", "20ms", program="""
            peer, begin = peers(), time.monotonic()
            for _ in range(5):
                if rank == 0:
                    receive(peer, 1)
                peer.sendall(b"!")
                if rank == 1:
                    receive(peer, 1)
            if rank == 1:
                print((time.monotonic() - begin) / 5)
        """)
        self.assertGreater(trip, 0.04)
        self.assertLess(trip, 0.4)

    def test_lose_a_share_of_the_packets(self):
        out, _ = self.nodes("-n", "2", "--loss", "5%", *python("""
            link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            link.bind((addresses[rank], 7070))
            link.settimeout(3)
            peer = (addresses[1 - rank], 7070)
            got = 0
            if rank == 0:
                time.sleep(1)
                for i in range(1000):
                    link.sendto(b"%d" % i, peer)
                    time.sleep(0.0001)
            else:
                try:
                    while True:
                        link.recv(100)
                        got += 1
                except TimeoutError:
                    print(got)
        """))
        self.assertIn(int(out.removeprefix("[rank 1] ")), range(850, 995))

    def test_lose_no_data_of_tcp(self):
        self.assertGreater(self.stream_s("--loss", "1%"), 0)

    def test_count_bytes(self):
        _, err = self.nodes("-n", "2", "--bytes", *python("""
            peer = peers()
            if rank == 0:
                peer.sendall(bytes(20000000))
            else:
                receive(peer, 20000000)
        """))
        rows = [line.split()[1:] for line in err.splitlines()
                if line.startswith("# node") and "eth0" in line]
        self.assertEqual([row[0] for row in rows], ["node0", "node1"])
        sent, received = int(rows[0][2]), int(rows[0][4])
        for count in (sent, int(rows[1][4])):
            self.assertIn(count, range(20000000, 21000000))
        self.assertLess(received, 1000000)


class TheEnd(Case):
    """Nothing is left, however it comes."""

    def setUp(self):
        self.before = machine()

    def begin(self, *arguments):
        """A run that would go on for ever, and the namespaces it's in."""
        run = start("-n", "2", "-p", "1", *arguments, "sh", "-c",
                    "readlink /proc/self/ns/net; sleep 1000 & sleep 1000")
        self.addCleanup(run.stdout.close)
        self.addCleanup(run.stderr.close)
        namespaces = {run.stdout.readline().split()[-1] for _ in range(2)}
        self.assertTrue(processes_in(namespaces))
        return run, namespaces

    def expect_nothing(self, namespaces):
        deadline = time.monotonic() + 30
        while processes_in(namespaces) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(processes_in(namespaces), [])
        self.assertEqual(machine(), self.before)

    def test_by_a_signal(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number):
                run, namespaces = self.begin("--delay", "1ms")
                run.send_signal(number)
                self.assertEqual(run.wait(TIMEOUT_S), 128 + number)
                self.expect_nothing(namespaces)

    def test_at_once_by_two_signals(self):
        run, namespaces = self.begin("--output", "rank")
        run.send_signal(signal.SIGINT)
        run.send_signal(signal.SIGINT)
        self.assertEqual(run.wait(TIMEOUT_S), 128 + signal.SIGINT)
        self.expect_nothing(namespaces)

    def test_by_a_kill(self):
        run, namespaces = self.begin("--delay", "1ms")
        run.kill()
        run.wait(TIMEOUT_S)
        self.expect_nothing(namespaces)

    @unittest.skipUnless(os.path.exists(VENV), "no .venv: run bin/setup")
    def test_of_torchrun(self):
        with tempfile.TemporaryDirectory() as folder:
            with unittest.mock.patch.dict(os.environ, TMPDIR=folder):
                run, namespaces = self.begin("--torchrun")
            run.send_signal(signal.SIGINT)
            self.assertEqual(run.wait(TIMEOUT_S), 128 + signal.SIGINT)
            self.expect_nothing(namespaces)
            self.assertEqual(os.listdir(folder), [])

    def test_by_a_failure_with_processes_left(self):
        out, _ = self.nodes(
            "-n", "2", "sh", "-c",
            "readlink /proc/self/ns/net; setsid sleep 1000 & exit 3", code=3)
        self.expect_nothing(set(re.findall(r"net:\[\d+\]", out)))

    def test_of_one_run_leaves_another_alone(self):
        first, namespaces = self.begin()
        second, others = self.begin("--delay", "1ms")
        self.assertFalse(namespaces & others)
        first.terminate()
        self.assertEqual(first.wait(TIMEOUT_S), 128 + signal.SIGTERM)
        self.assertTrue(processes_in(others))
        self.assertIsNone(second.poll())
        second.terminate()
        self.assertEqual(second.wait(TIMEOUT_S), 128 + signal.SIGTERM)
        self.expect_nothing(namespaces | others)


class Arguments(Case):

    def test_that_make_no_sense_are_refused(self):
        for arguments, why in (
                (["hostname"], "-n/--nodes"),
                (["-n", "0", "x"], "'0' isn't a number from 1 to 250"),
                (["-n", "two", "x"], "'two' isn't a number"),
                (["-n", "2"], "no PROGRAM is given"),
                (["-n", "2", "--rate", "fast", "x"], "such as 1gbit"),
                (["-n", "2", "--rate", "1bit", "x"], "kbit, mbit, gbit"),
                (["-n", "2", "--delay", "2", "x"], "us, ms, s, such as 2ms"),
                (["-n", "2", "--loss", "200%", "x"], "'200%' is above 100%"),
                (["-n", "2", "--losss", "1%", "x"], "--losss")):
            with self.subTest(arguments):
                out, err = self.nodes(*arguments, code=2)
                self.assertEqual(out, "")
                self.assertIn(why, err)

    def test_without_root_are_refused(self):
        # Without a map of users, everybody there is nobody.
        run = subprocess.run(["unshare", "--user"] + COMMAND +
                             ["-n", "2", "hostname"], text=True, check=False,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if "unshare failed" in run.stderr:
            self.skipTest("this kernel has no user namespaces to test in")
        self.assertEqual(run.returncode, 2)
        self.assertEqual(run.stderr, "bin/nodes: needs root, since it makes "
                         "network namespaces: run it as root or through sudo\n")


if __name__ == "__main__":
    junit.main()
