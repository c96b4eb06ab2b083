# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""A cluster on one machine: runs a program once per rank over several nodes.

Each node is a network namespace with a host name, addresses, /dev/shm and host
identity (TRNCCL_HOST_ID) of its own, and cores of its own where there are
enough; ranks of different nodes share no memory and meet over TCP only. It
needs root, leaves the machine's own network alone, and leaves nothing behind,
however it ends.

What links are made of:
  plain            a veth pair between two nodes; else veth pairs to a bridge
  --rate           tbf, out of each node and, past the bridge or relay, into it
  --delay, --loss  a relay between TAPs (tests/nodes/relay.cc), built by Bazel
                   when it's needed. It costs CPU time, more with --loss since
                   packets then are 1500 bytes long and no longer up to 64 KiB.

Ranks are numbered node by node. They find in their environment NODES_ADDRESSES
(a list with commas, of node 0 first), NODES_RANKS_PER_NODE and what the
launcher gives. Nodes are called node0, node1, ..., their interfaces eth0, ...
"""

import argparse
import os
import re
import signal
import subprocess
import sys

import cluster
import launch
import output
import sandbox

_EXAMPLES = """examples:
  bin/nodes -n 2 -p 1 bazel-bin/bindings/mpi/all_reduce_perf -b 8 -e 64M -f 8
  bin/nodes -n 4 -p 1 --delay 2ms --bytes PROGRAM
  bin/nodes -n 2 -p 2 --torchrun bindings/torch/examples/fsdp2_language_model.py
  bin/nodes -n 2 -p 1 hostname

exit code: the program's, as the launcher passes it on (mpirun: the code of the
first rank that failed; torchrun: 1); 128 and the signal's number if stopped;
2 if the arguments make no sense or this isn't root.
"""

_USAGE_ERROR = 2
_MOST_NODES = 250


class _BuildError(Exception):
    """Bazel couldn't build the relay."""


def _quantity(text, units, example):
    """A number and a unit, as units of the table's 1."""
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)([a-z%]+)", text)
    if match is None or match.group(2) not in units:
        raise argparse.ArgumentTypeError(
            "'%s' isn't a number with one of the units %s, such as %s" % (
                text, ", ".join(units), example))
    return float(match.group(1)) * units[match.group(2)]


def _rate(text):
    rate = int(_quantity(text, {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9},
                         "1gbit"))
    if not 8000 <= rate <= 100 * 10**9:
        raise argparse.ArgumentTypeError(
            "'%s' isn't between 8kbit and 100gbit" % text)
    return rate


def _delay(text):
    return int(_quantity(text, {"us": 10**3, "ms": 10**6, "s": 10**9}, "2ms"))


def _loss(text):
    loss = _quantity(text, {"%": 0.01}, "0.1%")
    if loss > 1:
        raise argparse.ArgumentTypeError("'%s' is above 100%%" % text)
    return loss


def _count(most):
    def parse(text):
        if not re.fullmatch("[0-9]+", text) or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(
                "'%s' isn't a number from 1 to %d" % (text, most))
        return int(text)
    return parse


def _parser():
    parser = argparse.ArgumentParser(
        prog="bin/nodes", description=__doc__, epilog=_EXAMPLES,
        usage="bin/nodes -n NODES -p RANKS_PER_NODE [options] PROGRAM ARGS...",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("-n", "--nodes", type=_count(_MOST_NODES), required=True)
    add("-p", "--ranks-per-node", type=_count(1024), default=1,
        metavar="RANKS", help="(default 1)")
    add("--rate", type=_rate, default=0, help="of each link, such as 1gbit")
    add("--delay", type=_delay, default=0, help="one way, such as 2ms")
    add("--loss", type=_loss, default=0,
        help="share of packets that get lost, each way, such as 0.1%%")
    add("--seed", type=_count(2**31), default=1,
        help="which packets get lost (default 1)")
    add("--rails", type=_count(16), default=1,
        help="interfaces a node, each in a subnet of its own (default 1)")
    add("--ipv6", action="store_true", help="IPv6 addresses, no IPv4 ones")
    add("--no-pin", action="store_true", help="let nodes share all cores")
    add("--torchrun", action="store_true",
        help="start by one torchrun a node, from .venv, in mpirun's place")
    add("--output", choices=["auto", "rank", "raw"], default="auto",
        help="rank: lines begin with [rank N]; auto (default): but rank 0's "
        "don't, so that its tables stay readable; raw: as the launcher does")
    add("--bytes", action="store_true",
        help="tell at the end, on stderr, what went through each interface, "
        "the launcher's messages included")
    add("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _build_relay():
    """The path of the relay, up to date."""
    top = os.path.dirname(os.path.dirname(os.path.dirname(
        os.path.realpath(__file__))))
    command = ["bazel", "build", "//tests/nodes:relay"]
    if os.environ.get("SUDO_USER"):  # The tree and its cache are that user's.
        command = ["sudo", "-H", "-u", os.environ["SUDO_USER"]] + command
    done = subprocess.run(command, cwd=top, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise _BuildError("can't build the relay:\n" + done.stdout)
    return os.path.join(top, "bazel-bin/tests/nodes/relay")


def _report(nodes, before):
    print("# node  interface  sent bytes  packets  received bytes  packets",
          file=sys.stderr)
    for node, start in zip(nodes, before):
        for name, now in node.traffic().items():
            seen = now.since(start[name])
            print("# %-5s %-9s %11d %8d %15d %8d" % (
                node.name, name, seen.sent_bytes, seen.sent_packets,
                seen.received_bytes, seen.received_packets), file=sys.stderr)


def _work(options, shape):
    made = cluster.Cluster(shape)
    before = [node.traffic() for node in made.nodes]
    shown = output.Output(shape.nodes * options.ranks_per_node, options.output)
    start, program = launch.mpirun, options.program
    if options.torchrun:
        start, program = launch.torchrun, launch.python_program(program)
    commands = start(made, options.ranks_per_node, shown.wrap(program))
    try:
        return output.wait([shown.start(c) for c in commands], shown)
    finally:
        if options.bytes:
            _report(made.nodes, before)


def _refuse(code, why):
    print("bin/nodes: %s" % why, file=sys.stderr)
    return code


def main():
    parser = _parser()
    options = parser.parse_args()
    if options.program[:1] == ["--"]:
        del options.program[0]
    if not options.program:
        parser.error("no PROGRAM is given")
    if os.geteuid() != 0:
        return _refuse(_USAGE_ERROR, "needs root, since it makes network "
                       "namespaces: run it as root or through sudo")
    os.environ["PATH"] += ":/usr/sbin:/sbin"  # Not every caller's has tc.
    shape = cluster.Shape(options.nodes, options.rails, options.rate,
                          options.delay, options.loss, options.seed,
                          options.ipv6, not options.no_pin)

    def work():
        try:
            return _work(options, shape)
        except (cluster.ClusterError, launch.LaunchError) as error:
            return _refuse(1, error)

    try:
        if shape.needs_relay:
            shape.relay = os.environ.get("NODES_RELAY") or _build_relay()
        return sandbox.run(work)
    except (OSError, _BuildError) as error:
        return _refuse(1, error)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
