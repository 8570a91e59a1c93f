"""The gang file: a Layout and all that the pods of one attempt must know, as one compact file. Pure.

`encode` writes what docs/contributing/kubernetes.md describes; variables that all nodes of a role, or all ranks, share
are written once. `node_of` puts one node together again as the launcher does, so a test can hold both to the Layout.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import msgspec

from longboat.bundles.manifests import CodeSnapshot
from longboat.core.errors import LAUNCHER_KILLED_CODE, EngineError, Refused
from longboat.core.guards.decoding import convert
from longboat.core.jobs import Job, Role, Value
from longboat.core.layouts import SCRUBBED, Layout, NodeLayout, NodeSite, RankLayout, lay_out, ports_needed
from longboat.core.resources import show_quantity
from longboat.core.words import counted
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.manifests import volumes
from longboat.engines.kubernetes.manifests.gpu_driver import driver_paths
from longboat.engines.kubernetes.records import Record, is_restarted_in_place, replaced_exits
from longboat.engines.shared.secret_urls import variable_of

VERSION = 1
LIMIT = 900 << 10
"""Bytes of the compressed gang file. A Secret holds 1 MiB."""

MOST_UNPACKED = 256 << 20
"""A Secret can be written by others than us: 900 KiB of it may stand for a gigabyte."""

COORDINATOR_PORT = 29500
RANK_PORT = 2222
LINE_PORT = 29499
"""Of the channel between the launchers of a run; a launcher takes it for a gang file that names none."""
IN_PLACE_WITHIN_S = 10.0
"""A gang that waits for its next attempt for longer gives its GPUs back meanwhile, and gets new pods."""
TOKEN = f"{volumes.ROOT}/gang/token"

CodeEntry = tuple[str, str, str, bool, str]
"""Path, kind, hash, executable, target of a link."""


class CodeManifest(Value, frozen=True):
    """The tree of the code, and how many packs hold its contents; or the objects below a URL that are these packs."""

    entries: tuple[CodeEntry, ...] = ()
    packs: int = 0
    url: str | None = None
    objects: tuple[str, ...] = ()


def code_manifest(
    snapshot: CodeSnapshot, packs: int, *, url: str | None = None, objects: tuple[str, ...] = ()
) -> CodeManifest:
    entries = tuple((e.path, e.kind, e.hash, e.executable, e.target) for e in snapshot.entries)
    return CodeManifest(entries=entries, packs=packs, url=url, objects=objects)


def layout_of(record: Record, attempt: int) -> Layout:
    """The job laid out over its pods."""
    addresses = names.addresses(record.job, record.name, attempt, record.workload)
    sites = [
        NodeSite(address=address, ports=(COORDINATOR_PORT, *range(RANK_PORT, RANK_PORT + count - 1)))
        for address, count in zip(addresses, ports_needed(record.job), strict=True)
    ]
    return lay_out(record.job, run=record.name, uid=record.uid, attempt=attempt, sites=sites)


def engine_env(role: Role) -> dict[str, str]:
    """Variables that this engine adds for a role: without requested GPUs, none is visible."""
    if role.resources.gpus.count:
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    hidden = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
    return {**dict.fromkeys(hidden, ""), "NVIDIA_VISIBLE_DEVICES": "void", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def gang_of(record: Record, layout: Layout, *, timeout_s: float | None, code: CodeManifest | None) -> dict[str, Any]:
    """The gang file as a value."""
    job = record.job
    places = volumes.places(job, record.storage, run=record.name, uid=record.uid)
    return {
        "version": VERSION,
        "plan": _shared_plan(record, layout),
        "roles": {role.name: _role(record, role, _nodes_of(layout, role)) for role in job.roles},
        "nodes": _nodes(job, layout),
        **_spares(record, layout),
        "rank_env": _shared(rank.env for node in layout.nodes for rank in node.ranks),
        "deciding": list(job.ends),
        "timeout_s": timeout_s,
        "code": None if code is None else _code(code),
        "data": [_data(record, place) for place in range(len(job.data))],
        "links": volumes.links(record),
        "checkpoints": _checkpoints(record),
        "artifacts": {"dir": record.artifacts_dir, "patterns": list(job.artifacts)},
        "keep": None if record.leaves_nothing else places.keep,
        "log_wait_s": record.log_wait_s,
        "stdin": record.stdin and layout.attempt == 0,
        "line": _line(record),
        **_restart(record),
    }


def _restart(record: Record) -> dict[str, Any]:
    """The rule of retries by which node 0 restarts failed ranks in place; nothing where it may not."""
    retries = record.job.retries
    if not is_restarted_in_place(record):
        return {}
    rule: dict[str, Any] = {"count": retries.last_attempt, "on": list(retries.on), "backoff_s": retries.backoff_s}
    rule["killed"] = LAUNCHER_KILLED_CODE in replaced_exits(record)
    return {"restart": {**rule, "within_s": IN_PLACE_WITHIN_S}}


def _line(record: Record) -> dict[str, Any]:
    """Settings of the launchers' channel. With JobSet all nodes of a failed gang end together."""
    is_exposed = record.workload == "jobset" and len(record.job.roles) > 1 and record.storage is None
    return {"port": LINE_PORT, "together": True} if is_exposed else {"port": LINE_PORT}


def _checkpoints(record: Record) -> dict[str, Any]:
    checkpoints = {"dir": record.checkpoint_dir, "keep": record.job.checkpoints.rule, "resume": record.resume_from}
    return checkpoints if record.checkpoint_store is None else {**checkpoints, "store": record.checkpoint_store}


def encode(gang: Mapping[str, Any], *, limit: int = LIMIT) -> bytes:
    """The same bytes for the same gang. Raises Refused when they do not fit into a Secret."""
    data = gzip.compress(msgspec.json.encode(gang), mtime=0)
    if len(data) > limit:
        ranks = sum(len(node["ranks"]) for node in gang["nodes"])
        files = len((gang["code"] or {"entries": ()})["entries"])
        raise Refused(
            f"what the pods must know takes {show_quantity(len(data))} compressed and a Secret holds"
            f" {show_quantity(limit)} of it: {counted(len(gang['nodes']), 'node')}, {counted(ranks, 'rank')},"
            f" {counted(files, 'file')} of code",
            hint="fewer nodes or ranks, a shorter run name, or fewer files of code (.longboatignore)",
        )
    return data


def decode(data: bytes) -> dict[str, Any]:
    """A gang file that was written by `encode`."""
    try:
        unpacking = zlib.decompressobj(wbits=31)
        text = unpacking.decompress(data, MOST_UNPACKED)
        if not unpacking.eof:
            raise EngineError("the gang file is damaged: it breaks off, or grows without measure")
        gang = msgspec.json.decode(text)
    except (zlib.error, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise EngineError(f"the gang file is damaged: {error}") from None
    if not isinstance(gang, dict):
        raise EngineError("the gang file is damaged: it is no object")
    return gang


def code_of(gang: Mapping[str, Any]) -> CodeManifest | None:
    """The code as an earlier attempt had it: a retry needs nothing from the submitter's machine."""
    return None if gang["code"] is None else convert(gang["code"], CodeManifest)


def node_of(gang: Mapping[str, Any], position: int) -> NodeLayout:
    """One node as its launcher sees it, with `engine_env` in its variables."""
    node = gang["nodes"][position]
    role = gang["roles"][node["role"]]
    command = node.get("command", role["command"])
    return NodeLayout(
        role=node["role"],
        index=node["index"],
        node_rank=position,
        address=node["address"],
        ports=(COORDINATOR_PORT, *range(RANK_PORT, RANK_PORT + len(node["ranks"]))),
        starter=node["starter"],
        command=command if isinstance(command, str) else tuple(command),
        env={**role["env"], **node["env"]},
        ranks=tuple(
            RankLayout(rank=rank["rank"], local_rank=rank["local_rank"], env={**gang["rank_env"], **rank["env"]})
            for rank in node["ranks"]
        ),
    )


def _shared_plan(record: Record, layout: Layout) -> dict[str, Any]:
    job = record.job
    has_mpi = any(node.starter in ("mpirun", "follower") for node in layout.nodes)
    return {
        "run": layout.run,
        "uid": layout.uid,
        "attempt": layout.attempt,
        "setup": job.setup,
        "grace_s": job.grace_s,
        "stall_s": job.stall_s,
        "mask": sorted(record.secrets),
        "unset": list(SCRUBBED),
        "mpi": {"token_file": TOKEN, "port": RANK_PORT} if has_mpi else None,
    }


def _role(record: Record, role: Role, nodes: Sequence[NodeLayout]) -> dict[str, Any]:
    return {
        "command": nodes[0].command,
        "env": {**_shared(node.env for node in nodes), **engine_env(role)},
        "memory_limit": role.resources.memory,
        **driver_paths(record, role),
    }


def _nodes_of(layout: Layout, role: Role) -> list[NodeLayout]:
    return [node for node in layout.nodes if node.role == role.name]


def _nodes(job: Job, layout: Layout) -> list[dict[str, Any]]:
    shared = {role.name: _shared(node.env for node in _nodes_of(layout, role)) for role in job.roles}
    commands = {role.name: _nodes_of(layout, role)[0].command for role in job.roles}
    added = {role.name: engine_env(role) for role in job.roles}
    of_ranks = _shared(rank.env for node in layout.nodes for rank in node.ranks)
    nodes = []
    for node in layout.nodes:
        own = _less({k: v for k, v in node.env.items() if k not in added[node.role]}, shared[node.role])
        entry: dict[str, Any] = {
            "role": node.role,
            "index": node.index,
            "address": node.address,
            "starter": node.starter,
            "env": own,
            "ranks": [{"rank": r.rank, "local_rank": r.local_rank, "env": _less(r.env, of_ranks)} for r in node.ranks],
        }
        if node.command != commands[node.role]:
            entry["command"] = node.command
        nodes.append(entry)
    return nodes


def _spares(record: Record, layout: Layout) -> dict[str, Any]:
    """Spare nodes, without ranks. Their setup sees the variables of their role's last node."""
    addresses = names.spare_addresses(record.job, record.name, layout.attempt, record.workload)
    nodes = {node["role"]: node for node in _nodes(record.job, layout)}
    spares = []
    for name, address in addresses.items():
        role, _, index = name.rpartition("-")
        spares.append({"role": role, "index": int(index), "address": address, "env": nodes[role]["env"]})
    return {"spares": spares} if spares else {}


def _shared(envs: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The variables that all of them have with the same value."""
    common: dict[str, str] | None = None
    for env in envs:
        common = dict(env) if common is None else {k: v for k, v in common.items() if env.get(k) == v}
    return common or {}


def _less(env: Mapping[str, str], shared: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name not in shared}


def _code(code: CodeManifest) -> dict[str, Any]:
    fields: dict[str, Any] = {"entries": code.entries, "packs": code.packs}
    return fields if code.url is None else {**fields, "url": code.url, "objects": code.objects}


def _data(record: Record, place: int) -> dict[str, Any]:
    """One import. `variable`, if there is one, has the whole URL in the pod; the record knows it without its secret."""
    item, variable = record.job.data[place], variable_of(place)
    data: dict[str, Any] = {"url": item.url, "to": item.to, "sha256": item.sha256, "unpack": item.unpack}
    if variable in record.secrets:
        data["variable"] = variable
    if item.to.startswith("/"):  # links of a volume must not lead the import out of it
        targets = (volume.target for volume in record.job.volumes)
        data["volume"] = next((each for each in targets if PurePosixPath(item.to).is_relative_to(each)), None)
    return data
