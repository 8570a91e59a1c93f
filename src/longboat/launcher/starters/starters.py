"""Set-up of a node whose ranks torchrun or mpirun start: stand-ins for torchrun, hosts and an agent for mpirun."""

from __future__ import annotations

import os
import sys

from ..location import entry_point
from ..node.jsonfiles import loads, write_json, write_whole
from ..node.plan import NodePlan
from ..ranks.state import LauncherState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

LINE_MAX = 1 << 16
"""Bytes of one event of a stand-in, which has a dozen short fields."""


def torchrun_environment(plan: NodePlan, env: dict[str, str]) -> dict[str, str]:
    """Write the stand-in and return the variables that make torchrun use it."""
    from .torchrun_worker import RANKS, USERS_PYTHON

    os.makedirs(os.path.join(plan.directory, "workers"), exist_ok=True)
    standin = _script(plan, "standin", ["--standin"])
    ordered = sorted(plan.ranks, key=lambda rank: rank.local_rank)
    added = {
        "PYTHON_EXEC": standin,
        RANKS: ",".join(str(rank.rank) for rank in ordered),
        USERS_PYTHON: env.get("PYTHON_EXEC", ""),
    }
    return {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(max(1, int(plan.grace_s))), **env, **added}


def watch_workers(state: LauncherState, on_event: Callable[[dict[str, Any]], None]) -> Callable[[], None]:
    """Call `on_event` for every event of the stand-ins. Returns a function that reads pending ones."""
    path = state.path("pipes", "workers")
    try:
        os.mkfifo(path, 0o600)
    except FileExistsError:
        pass
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    held = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    rest = [b""]

    def read() -> None:
        try:
            data = rest[0] + os.read(descriptor, 65536)
        except BlockingIOError:
            return
        *lines, rest[0] = data.split(b"\n")
        if len(rest[0]) > LINE_MAX:
            rest[0] = b""
        for line in lines:
            try:
                on_event(loads(line.decode("utf-8")))
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
                continue  # whatever runs in the rank may write into the pipe

    assert held >= 0  # never closed: the pipe has no end
    state.loop.watch(descriptor, read)
    return read


def mpirun_environment(plan: NodePlan, env: dict[str, str]) -> dict[str, str]:
    """Write the host file and the agent that starts commands on other nodes; the user's own settings are kept."""
    folder = _without_spaces(plan)
    hosts = env.get("LONGBOAT_MPI_HOSTS") or ",".join("%s:%d" % (peer["node"], len(plan.ranks)) for peer in plan.peers)
    lines = ["%s slots=%s\n" % (name, slots) for name, _, slots in (host.rpartition(":") for host in hosts.split(","))]
    write_whole(os.path.join(plan.directory, "hostfile"), "".join(lines).encode("utf-8"))
    colons = [line.replace(" slots=", ":") for line in lines]
    write_whole(os.path.join(plan.directory, "machinefile"), "".join(colons).encode("utf-8"))
    facts = {**(plan.mpi or {}), "peers": {peer["node"]: peer["address"] for peer in plan.peers}}
    write_json(os.path.join(plan.directory, "mpi.json"), facts)
    _script(plan, "agent", ["--agent", os.path.join(plan.directory, "mpi.json")])
    hostfile, machinefile, agent = (os.path.join(folder, name) for name in ("hostfile", "machinefile", "agent"))
    return {
        "OMPI_MCA_orte_default_hostfile": hostfile,
        "OMPI_MCA_plm_rsh_agent": agent,
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "PRTE_MCA_prte_default_hostfile": hostfile,
        "PRTE_MCA_plm_ssh_agent": agent,
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "HYDRA_HOST_FILE": machinefile,
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": agent,
        "I_MPI_HYDRA_HOST_FILE": machinefile,
        "I_MPI_HYDRA_BOOTSTRAP": "ssh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": agent,
        **env,
    }


def _without_spaces(plan: NodePlan) -> str:
    """A link to the node's folder without blanks, at which Open MPI splits the agent's path."""
    if not any(char.isspace() for char in plan.directory):
        return plan.directory
    import tempfile

    link = os.path.join(tempfile.mkdtemp(prefix="longboat-", dir="/tmp"), "node")
    os.symlink(plan.directory, link)
    return link


def forget_mpirun(env: dict[str, str], plan: NodePlan) -> None:
    """Remove the link of `_without_spaces`."""
    folder = os.path.dirname(env.get("OMPI_MCA_plm_rsh_agent", ""))
    if folder and folder != plan.directory and os.path.islink(folder):
        os.unlink(folder)
        os.rmdir(os.path.dirname(folder))


def _script(plan: NodePlan, name: str, arguments: list[str]) -> str:
    """Write an executable that starts this launcher with these arguments; works with blanks in paths."""
    words = [sys.executable, "-I", "-S", entry_point()] + arguments
    quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
    path = os.path.join(plan.directory, name)
    write_whole(path, ('#!/bin/sh\nexec %s "$@"\n' % quoted).encode("utf-8", "surrogateescape"), 0o755)
    return path
