# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Nodes: network namespaces with a host name each, joined by links.

    cluster = Cluster(Shape(nodes=2, rate="1gbit"))
    subprocess.run(cluster.nodes[1].enter() + ["hostname"])    # node1

To be used inside of sandbox.run(), whose network namespace is the switch. A
node is the namespaces (network, host name, IPC, mounts) of one sleeping
process, its holder; /sys and /dev/shm are its own as well.

                    link eth0, one a rail
  two nodes         a veth pair, node to node
  any other number  veth pairs to a bridge in the switch
  delay or loss     a TAP a node, and relay.cc between them
"""

import dataclasses
import os
import subprocess

_HOLDER = """set -e
hostname "$1"
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /dev/shm
ip link set lo up
echo ready
exec sleep infinity
"""

# What waits for a rate: as much as a network card's queue holds.
_QUEUE_BYTES = 1500000
_BURST_S = 0.001
_SMALLEST_BURST_BYTES = 4000


class ClusterError(Exception):
    """The machine doesn't let us make it."""


@dataclasses.dataclass
class Shape:
    """What the cluster is like. Zero: no limit, no delay, no loss."""
    nodes: int
    rails: int = 1
    rate_bits: int = 0  # a second
    delay_ns: int = 0
    loss: float = 0  # share of the packets
    seed: int = 1
    ipv6: bool = False
    pin: bool = True
    relay: str = ""  # its program

    @property
    def needs_relay(self):
        return self.delay_ns > 0 or self.loss > 0


@dataclasses.dataclass
class Traffic:
    """What went through a network interface."""
    sent_bytes: int
    sent_packets: int
    received_bytes: int
    received_packets: int

    def since(self, start):
        return Traffic(*(a - b for a, b in zip(dataclasses.astuple(self),
                                               dataclasses.astuple(start))))


@dataclasses.dataclass
class Node:
    """A machine, as seen from the sandbox."""
    index: int
    name: str
    holder: subprocess.Popen
    addresses: list  # one a rail
    cores: list  # of its own; empty: all

    def enter(self, variables=None):
        """Starts a command that runs inside, in the current folder."""
        settings = {"TRNCCL_HOST_ID": self.name, **(variables or {})}
        command = ["nsenter", "--target", str(self.holder.pid), "--net",
                   "--uts", "--ipc", "--mount", "--", "env", "-C", os.getcwd()]
        command += ["%s=%s" % setting for setting in settings.items()]
        if self.cores:
            command += ["taskset", "-c", ",".join(map(str, self.cores))]
        return command

    def traffic(self):
        """Interface: Traffic, since the node was made."""
        with open("/proc/%d/net/dev" % self.holder.pid,
                  encoding="ascii") as file:
            lines = file.read().splitlines()[2:]
        found = {}
        for line in lines:
            name, _, counts = line.partition(":")
            received = counts.split()[:8]
            sent = counts.split()[8:]
            found[name.strip()] = Traffic(int(sent[0]), int(sent[1]),
                                          int(received[0]), int(received[1]))
        del found["lo"]
        return found


def _run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError("'%s' failed: %s" % (" ".join(command),
                                                done.stdout.strip()))


def _await_ready(process, what):
    if process.stdout.readline() != "ready\n":
        raise ClusterError("%s didn't start: its message is above" % what)


def _own_cores(nodes):
    """For each node, cores that no other has, where there are enough."""
    cores = sorted(os.sched_getaffinity(0))
    each = len(cores) // nodes
    return [cores[i * each:(i + 1) * each] for i in range(nodes)]


def _limit_rate(enter, interface, shape):
    if shape.rate_bits == 0:
        return
    burst = max(int(shape.rate_bits / 8 * _BURST_S), _SMALLEST_BURST_BYTES)
    _run(*enter, "tc", "qdisc", "add", "dev", interface, "root", "tbf", "rate",
         "%dbit" % shape.rate_bits, "burst", str(burst), "limit",
         str(_QUEUE_BYTES + burst))


class Cluster:
    """The nodes of a Shape, up and reachable."""

    def __init__(self, shape):
        self.shape = shape
        self._relays = []
        width = len(str(shape.nodes - 1))  # so that names sort by number
        cores = _own_cores(shape.nodes) if shape.pin else [[]] * shape.nodes
        names = ["node%0*d" % (width, i) for i in range(shape.nodes)]
        addresses = [[self._address(i, rail) for rail in range(shape.rails)]
                     for i in range(shape.nodes)]
        self._write_hosts(names, addresses)
        self.nodes = [Node(i, names[i], self._hold(names[i]), addresses[i],
                           cores[i]) for i in range(shape.nodes)]
        for rail in range(shape.rails):
            self._link(rail)
            for node in self.nodes:
                self._bring_up(node, rail)

    def _address(self, index, rail):
        pattern = "fd77:0:0:%d::%x" if self.shape.ipv6 else "10.77.%d.%d"
        return pattern % (rail, index + 1)

    def _write_hosts(self, names, addresses):
        path = "/dev/shm/hosts"
        with open(path, "w", encoding="ascii") as file:
            file.write("127.0.0.1 localhost\n::1 localhost\n")
            for name, rails in zip(names, addresses):
                file.write("%s %s\n" % (rails[0], name))
                if not self.shape.ipv6:
                    # What servers on IPv6 sockets ask for their peers' names.
                    file.write("::ffff:%s %s.mapped\n" % (rails[0], name))
        _run("mount", "--bind", path, "/etc/hosts")

    @staticmethod
    def _hold(name):
        holder = subprocess.Popen(
            ["unshare", "--net", "--uts", "--ipc", "--mount", "sh", "-c",
             _HOLDER, "sh", name],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        _await_ready(holder, name)
        return holder

    def _link(self, rail):
        name = "eth%d" % rail
        if self.shape.needs_relay:
            self._start_relay(name)
        elif self.shape.nodes == 2:
            ends = [str(node.holder.pid) for node in self.nodes]
            _run("ip", "link", "add", name, "netns", ends[0], "type", "veth",
                 "peer", "name", name, "netns", ends[1])
        else:
            bridge = "rail%d" % rail
            _run("ip", "link", "add", bridge, "type", "bridge")
            _run("ip", "link", "set", bridge, "up")
            for node in self.nodes:
                port = "%s-%d" % (node.name, rail)
                _run("ip", "link", "add", port, "master", bridge, "type",
                     "veth", "peer", "name", name, "netns",
                     str(node.holder.pid))
                _run("ip", "link", "set", port, "up")
                _limit_rate([], port, self.shape)

    def _start_relay(self, name):
        shape = self.shape
        relay = subprocess.Popen(
            [shape.relay, str(shape.delay_ns), str(shape.loss),
             str(shape.seed), str(shape.rate_bits // 8), name] +
            ["/proc/%d/ns/net" % node.holder.pid for node in self.nodes],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self._relays.append(relay)
        _await_ready(relay, "the relay of " + name)

    def _bring_up(self, node, rail):
        name = "eth%d" % rail
        enter = node.enter()
        if self.shape.ipv6:
            where = [node.addresses[rail] + "/64", "nodad"]
        else:
            # No packets but the program's: IPv6 would look for neighbours.
            _run(*enter, "ip", "link", "set", name, "addrgenmode", "none")
            where = [node.addresses[rail] + "/24"]
        if self.shape.needs_relay:
            _run(*enter, "ip", "link", "set", name, "txqueuelen", "4000")
        _run(*enter, "ip", "link", "set", name, "up")
        _run(*enter, "ip", "address", "add", *where, "dev", name)
        _limit_rate(enter, name, self.shape)
