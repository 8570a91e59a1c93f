"""The gang file, which all nodes of an attempt share, and the plan of one node that it gives. Pure."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Mapping

VERSION = 1
# These three are for a gang file that does not tell.
LINE_PORT = 29499
PEERS_S = 600.0  # an image of 20 GB is pulled in ten minutes on an ordinary line
LOST_S = 30.0  # a switch that restarts is back by then
PLAN_KEYS = ("run", "uid", "attempt", "setup", "grace_s", "stall_s", "mask")


class GangError(Exception):
    """The gang file is invalid, or has no such node."""


def name_of(node: dict[str, Any]) -> str:
    return "%s-%d" % (node["role"], int(node["index"]))


def matching(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """Resolve a list of names and prefixes (`NAME*`)."""
    patterns = list(patterns)
    return [
        name
        for name in names
        if any(name.startswith(each[:-1]) if each.endswith("*") else name == each for each in patterns)
    ]


def addresses(gang: Mapping[str, Any], places: Mapping[str, str]) -> dict[str, str]:
    """Address in the gang file -> that of the pod which plays the node now. Raises GangError."""
    own = {name_of(each): each["address"] for each in members(gang)}
    unknown = next((name for pair in places.items() for name in pair if name not in own), None)
    if unknown is not None:
        raise GangError("node 0 speaks of %s, which is not a node of this run" % unknown[:100])
    return {own[node]: own[pod] for pod, node in places.items()}


def members(gang: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Nodes of a gang file, spares last."""
    return [*gang["nodes"], *(gang.get("spares") or [])]


def moved(gang: dict[str, Any], places: Mapping[str, str]) -> dict[str, Any]:
    """The gang file with the addresses of the pods that play its nodes, in all that processes see."""
    if not places:
        return gang
    import re

    to = addresses(gang, places)
    either = re.compile(r"(?<![\w.-])(?:%s)(?![\w-])" % "|".join(map(re.escape, to)))

    def put(value: Any) -> Any:
        if isinstance(value, str):
            return either.sub(lambda match: to[match.group()], value)
        if isinstance(value, dict):
            return {key: put(each) for key, each in value.items()}
        return [put(each) for each in value] if isinstance(value, list) else value

    return {**gang, **{key: put(gang[key]) for key in ("nodes", "spares", "roles", "rank_env") if gang.get(key)}}


def plan_of(gang: dict[str, Any], role: str, index: int, root: str, inherited: Iterable[str]) -> dict[str, Any]:
    """Build plan.json (docs/contributing/launcher.md) from the gang file. `root`: our folder in the pod."""
    try:
        if int(gang["version"]) != VERSION:
            raise GangError("the gang file has version %s, this launcher knows %d" % (gang["version"], VERSION))
        name = "%s-%d" % (role, index)
        rank = next((place for place, node in enumerate(members(gang)) if name_of(node) == name), None)
        if rank is None:
            raise GangError("%s is not a node of this run" % name)
        return _plan(gang, rank, root, list(inherited))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise GangError("the gang file cannot be used: %s: %s" % (type(error).__name__, error)) from None


def _plan(gang: dict[str, Any], rank: int, root: str, inherited: list[str]) -> dict[str, Any]:
    shared, node = gang["plan"], members(gang)[rank]
    role = gang["roles"][node["role"]]
    directory = os.path.join(root, "node")
    plan = {key: shared.get(key) for key in PLAN_KEYS}
    checkpoints = gang.get("checkpoints") or {}
    artifacts = gang.get("artifacts") or {}
    plan.update(
        role=node["role"],
        index=int(node["index"]),
        node=name_of(node),
        node_rank=rank,
        address=node["address"],
        directory=directory,
        workdir=os.path.join(directory, "work"),
        scratch=os.path.join(directory, "scratch"),
        starter=node.get("starter") or "longboat",
        command=node.get("command") or role["command"],
        env={**(role.get("env") or {}), **(node.get("env") or {})},
        spares=[name_of(each) for each in gang.get("spares") or []],
        unset=matching(inherited, shared.get("unset") or []),
        ranks=_ranks(gang, node),
        path_prepend=role.get("path_prepend"),
        library_path=role.get("library_path"),
        memory_limit=role.get("memory_limit"),
        peers=[{"node": name_of(each), "address": each["address"]} for each in gang["nodes"]],
        wait=_wait(gang, root),
        checkpoint_dir=checkpoints.get("dir"),
        checkpoint_writer=_writer(gang),
        artifacts_dir=artifacts.get("dir"),
        resume_from=checkpoints.get("resume"),
        checkpoint_store=checkpoints.get("store"),
        mpi=_mpi(shared, node, root),
        echo="pod",
        termination=gang.get("termination") or "/dev/termination-log",
        keep=gang.get("keep"),
        log_wait_s=gang.get("log_wait_s"),
        stdin=bool(gang.get("stdin")),
        keep_checkpoints=checkpoints.get("keep") or 0,
        artifacts=list(artifacts.get("patterns") or []),
        restart=gang.get("restart"),
    )
    return plan


def _ranks(gang: dict[str, Any], node: dict[str, Any]) -> list[dict[str, Any]]:
    shared = gang.get("rank_env") or {}
    return [{**each, "env": {**shared, **(each.get("env") or {})}} for each in node.get("ranks") or []]


def _deciding(gang: dict[str, Any]) -> list[str]:
    """Names of the nodes that decide success, in the order of all nodes."""
    deciding = gang.get("deciding") or list(gang["roles"])
    return [name_of(node) for node in gang["nodes"] if node["role"] in deciding and node.get("starter") != "follower"]


def _writer(gang: dict[str, Any]) -> str:
    """The node whose first rank writes the checkpoints; only one, since storage may be shared."""
    return (_deciding(gang) or [name_of(gang["nodes"][0])])[0]


def _wait(gang: dict[str, Any], root: str) -> dict[str, Any]:
    line = gang.get("line") or {}
    return {
        "kind": "line",
        "port": int(line.get("port") or LINE_PORT),
        "token_file": os.path.join(root, "gang", "token"),
        "timeout_s": float(line.get("timeout_s") or PEERS_S),
        "lost_s": float(line.get("lost_s") or LOST_S),
        "together": bool(line.get("together")),
        # A follower ends when it is told to, never by itself.
        "deciding": _deciding(gang),
        "run_timeout_s": gang.get("timeout_s"),
    }


def _mpi(shared: dict[str, Any], node: dict[str, Any], root: str) -> dict[str, Any] | None:
    if node.get("starter") not in ("mpirun", "follower"):
        return None
    given = shared.get("mpi")
    port = given.get("port") if isinstance(given, dict) else given
    return {"port": int(port or shared["mpi_port"]), "token_file": os.path.join(root, "gang", "token")}
