# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Hosts for tests: network namespaces, and networks that join them.

    networks = hosts.Networks(test)
    host = hosts.Host(test, "a")
    networks.join(networks.add("lan"), host, "eth0", "10.1.0.1/24")
    process = host.start(test, "program", "argument")

A network is a bridge in a namespace that only has bridges. All end with the
test that they were made for. For links with a rate or a delay, and for running
programs on a whole cluster, see tests/nodes.
"""

import os
import subprocess
import unittest

TIMEOUT_S = 60

_PREFIX = "trn-host-%d-" % os.getpid()


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True,
                          timeout=TIMEOUT_S)
    if done.returncode != 0:
        raise RuntimeError("%s: %s" % (" ".join(words), done.stderr.strip()))
    return done.stdout


def skip_without_root():
    """For setUpModule()."""
    name = _PREFIX + "probe"
    try:
        run("ip", "netns", "add", name)
    except (OSError, RuntimeError) as error:
        raise unittest.SkipTest(
            "needs root and network namespaces: %s" % error)
    run("ip", "netns", "del", name)


class _Namespace:
    """With loopback up, and no waiting for duplicates of IPv6 addresses."""

    def __init__(self, test, name):
        self.name = _PREFIX + name
        run("ip", "netns", "add", self.name)
        test.addCleanup(run, "ip", "netns", "del", self.name)
        self.sh("echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad;"
                "ip link set lo up")

    def sh(self, script):
        return run("ip", "netns", "exec", self.name, "sh", "-ec", script)


class Host(_Namespace):
    def no_ipv6(self):
        self.sh("for f in all default; do"
                " echo 1 > /proc/sys/net/ipv6/conf/$f/disable_ipv6; done")

    def bridge(self, name, address):
        self.sh("ip link add {0} type bridge; ip link set {0} up;"
                # A bridge runs once it has a port.
                "ip link add veth-{0} type veth peer name vp-{0};"
                "ip link set veth-{0} master {0} up; ip link set vp-{0} up;"
                "ip addr add {1} dev {0}".format(name, address))

    def card(self, name, *addresses):
        """An interface that leads nowhere."""
        self.sh("ip link add {0} type veth peer name veth-{0};"
                "ip link set {0} up; ip link set veth-{0} up".format(name))
        for address in addresses:
            self.sh("ip addr add %s dev %s" % (address, name))

    def start(self, test, *command, **variables):
        """A process whose output is read by output_of()."""
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.name, *command],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, **variables})

        def stop():
            process.kill()
            process.wait()
            process.stdout.close()

        test.addCleanup(stop)
        return process


def output_of(process):
    return process.communicate(timeout=TIMEOUT_S)[0]


class Networks(_Namespace):
    """Bridges, a network each."""

    def __init__(self, test):
        super().__init__(test, "net")
        self._cables = 0

    def add(self, network):
        self.sh("ip link add {0} type bridge; ip link set {0} up".format(
            network))
        return network

    def join(self, network, host, interface, *addresses):
        self._cables += 1
        port = "port%d" % self._cables
        self.sh("ip link add {0} type veth peer name {1} netns {2};"
                "ip link set {0} master {3} up".format(
                    port, interface, host.name, network))
        host.sh("ip link set %s up" % interface)
        for address in addresses:
            host.sh("ip addr add %s dev %s" % (address, interface))
