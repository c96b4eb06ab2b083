# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""How a program is started on the nodes of a cluster, once per rank.

    commands = launch.mpirun(cluster, ranks_per_node, ["./program"])

Each function returns the commands to run side by side from the sandbox: one
mpirun in node 0, or one torchrun a node.
"""

import os
import shlex

import sandbox

_REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.realpath(__file__))))
# In the memory of a node, with which it goes.
_LOGS = "/dev/shm/torchrun"

_PORT = 29500

# What torchruns meet at. Node 0's would end its own while the others still talk
# to it, and they'd tell of that at length.
_STORE = """import signal, sys
from torch.distributed import TCPStore
store = TCPStore(sys.argv[1], %d, is_master=True, wait_for_workers=False)
signal.pause()
""" % _PORT
_WITH_STORE = '"$1" -c "$2" "$3" & shift 3; exec "$@"'

# In ssh's place: drops options, and runs the command in the host's namespaces.
_AGENT = """#!/bin/sh
while case "$1" in -*) true ;; *) false ;; esac; do shift; done
host="$1"
shift
case "$host" in
%s*) echo "bin/nodes: no node is called $host" >&2; exit 1 ;;
esac
"""


class LaunchError(Exception):
    """What's needed to start programs isn't there."""


def _share_cores(cluster, ranks_per_node):
    """Whether ranks are more than cores. They can't see it: a node's rank knows
    of its own node's only."""
    cores = cluster.nodes[0].cores
    if cores:
        return ranks_per_node > len(cores)
    return len(cluster.nodes) * ranks_per_node > len(os.sched_getaffinity(0))


def _variables(cluster, ranks_per_node):
    """What every rank finds in its environment. Names of ours can't begin with
    TRNCCL_: those are the library's settings."""
    variables = {
        "NODES_ADDRESSES": ",".join(n.addresses[0] for n in cluster.nodes),
        "NODES_RANKS_PER_NODE": str(ranks_per_node),
        "GLOO_SOCKET_IFNAME": "eth0",
    }
    if _share_cores(cluster, ranks_per_node):
        # Who spins keeps the one it waits for from running.
        variables["TRNCCL_SPIN_US"] = os.environ.get("TRNCCL_SPIN_US", "0")
    return variables


def _write_agent(cluster, variables):
    cases = "".join("%s) exec %s sh -c \"$*\" ;;\n" % (
        "|".join([node.name] + node.addresses),
        shlex.join(node.enter(variables))) for node in cluster.nodes)
    with open("/dev/shm/agent", "w", encoding="utf-8") as file:
        file.write(_AGENT % cases)
    os.chmod("/dev/shm/agent", 0o755)
    return sandbox.SHARED + "/agent"


def mpirun(cluster, ranks_per_node, program):
    """Open MPI over TCP and shared memory, bound to nothing: the nodes are."""
    node = cluster.nodes[0]
    variables = _variables(cluster, ranks_per_node)
    variables.update(OMPI_ALLOW_RUN_AS_ROOT="1",
                     OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                     # For programs that use torch.distributed.
                     MASTER_ADDR=node.addresses[0], MASTER_PORT=str(_PORT))
    rails = ",".join("eth%d" % i for i in range(cluster.shape.rails))
    parameters = {
        "plm_rsh_agent": _write_agent(cluster, variables),
        "plm_rsh_no_tree_spawn": "1",
        # Each node's own: runs at once have the same names in /tmp.
        "orte_tmpdir_base": "/dev/shm",
        "pml": "ob1",
        "btl": "tcp,self,vader",
        "btl_tcp_if_include": rails,
        "oob_tcp_if_include": "eth0",
    }
    if _share_cores(cluster, ranks_per_node):
        parameters["mpi_yield_when_idle"] = "1"
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "--host",
               ",".join("%s:%d" % (n.name, ranks_per_node)
                        for n in cluster.nodes),
               "--map-by", "ppr:%d:node" % ranks_per_node]
    for parameter in parameters.items():
        command += ["--mca", *parameter]
    return [node.enter(variables) + command + program]


def torchrun(cluster, ranks_per_node, program):
    """A torchrun a node, which meet at node 0."""
    folder = os.path.join(_REPOSITORY, ".venv/bin/")
    if not os.path.exists(folder + "torchrun"):
        raise LaunchError("no %storchrun: run bin/setup first" % folder)
    first = cluster.nodes[0].addresses[0]
    endpoint = "[%s]" % first if cluster.shape.ipv6 else first
    variables = _variables(cluster, ranks_per_node)
    if ranks_per_node > 1:
        # What torchrun sets as well, but with a warning from each node.
        variables["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")
    # It numbers nodes in the order of --local-addr.
    commands = [[
        folder + "torchrun", "--nnodes", str(cluster.shape.nodes),
        "--nproc-per-node", str(ranks_per_node), "--rdzv-backend", "c10d",
        "--rdzv-endpoint", "%s:%d" % (endpoint, _PORT), "--rdzv-conf",
        "is_host=false", "--rdzv-id", "nodes", "--local-addr", node.name,
        "--log-dir", _LOGS, "--no-python"] + program for node in cluster.nodes]
    commands[0] = ["sh", "-c", _WITH_STORE, "sh", folder + "python", _STORE,
                   first] + commands[0]
    return [node.enter(variables) + command
            for node, command in zip(cluster.nodes, commands)]


def python_program(program):
    """As torchrun takes a script: run by the Python of .venv."""
    if not program[0].endswith(".py"):
        return program
    return [os.path.join(_REPOSITORY, ".venv/bin/python"), "-u"] + program
