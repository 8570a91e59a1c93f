"""Checked fields to a Job: defaults filled in, top level spread over the roles, contradictions found. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from longboat.core.errors import RUN_LOST_EXIT
from longboat.core.jobs import (
    DEFAULT_ROLE,
    PASSIVE_ROLES,
    Checkpoints,
    Command,
    Framework,
    Gpus,
    Job,
    Resources,
    Retries,
    Role,
)
from longboat.specs.elastic_commands import fixed_count, impossible_range, range_of_command, without_range
from longboat.specs.fields.field_table import ROLE_FIELDS
from longboat.specs.fields.node_counts import MAX_NODES, NodeRange
from longboat.specs.fields.other_names import is_named
from longboat.specs.fields.rules import clean_target, is_below
from longboat.specs.fields.scalars import FieldPath, nearest, quote
from longboat.specs.yaml.yaml_tree import YamlNode

LOSSES = ("lost", "preemption", RUN_LOST_EXIT)
"""What `retries.on` calls the loss of a node. A pod that is killed for want of memory is lost too."""
MAX_RANKS = 100_000  # beyond any training; below it all lists stay in memory

Fields = Mapping[str, Any]


def role_fields(values: Fields) -> dict[str, dict[str, Any]]:
    """Fields of every role, the top level filled in."""
    shared = {field.name: values[field.name] for field in ROLE_FIELDS if field.name in values}
    roles: Mapping[str, Any] = values.get("roles") or {DEFAULT_ROLE: {}}
    filled = {}
    for name, own in roles.items():
        own = own or {}
        filled[name] = {**shared, **own}
        if (bounds := range_of_command(filled[name].get("run"))) is not None and "nodes" not in filled[name]:
            filled[name]["nodes"] = NodeRange(low=bounds[0], high=bounds[1])
        if "env" in shared or "env" in own:
            filled[name]["env"] = {**(shared.get("env") or {}), **(own.get("env") or {})}
    return filled


def check_contradictions(values: Fields, root: YamlNode, at: FieldPath) -> None:
    """What no single field can tell."""
    given = root.value if isinstance(root.value, dict) else {}
    roles = role_fields(values)
    if isinstance(values.get("roles"), dict) and not given["roles"].value:
        at.into("roles").problem(given["roles"], "found no role, expected at least one")
    _check_run(roles, given, root, at)
    for index, name in enumerate(values.get("ends") or ()):
        if name is not None and name not in roles and values.get("roles", {}) is not None:
            node = given["ends"]
            node = node.value[index] if isinstance(node.value, list) else node
            known = ", ".join(roles)
            close = nearest(name, roles)
            at.into("ends").problem(node, f"found {quote(name)}, expected one of the roles {known}{close}")
    _check_size(roles, root, at)
    _check_elastic(roles, values, root, at)
    _check_spares(roles, values, root, at)
    _check_data(values, given, root, at)


def _check_data(values: Fields, given: dict[str, YamlNode], root: YamlNode, at: FieldPath) -> None:
    """Data goes into the working copy or into a volume; anywhere else it would be written over what others have."""
    volumes = [clean_target(volume.target) for volume in values.get("volumes") or () if volume is not None]
    nodes = given["data"].value if _is_given(given, "data") else None
    for index, item in enumerate(values.get("data") or ()):
        place = None if item is None else clean_target(item.to)
        if place is None or not place.startswith("/") or any(is_below(place, volume) for volume in volumes):
            continue
        at.into("data").problem(
            nodes[index] if isinstance(nodes, list) else given.get("data", root),
            f"found {quote(item.to)}, expected a folder in the working copy or in one of the job's volumes",
            hint=f"write `to: {place.rpartition('/')[2]}`, or mount a volume that holds {place}",
        )


def _check_run(roles: dict[str, dict[str, Any]], given: dict[str, YamlNode], root: YamlNode, at: FieldPath) -> None:
    """A role whose own (or inherited) `run` was written but wrong has its problem already."""
    if _is_given(given, "run"):
        return
    written = given["roles"].value if _is_given(given, "roles") else None
    if not isinstance(written, dict):
        if not _is_given(given, "roles") and not is_named("run", given):
            at.problem(root, 'the field "run" is missing: the command to run', hint="for example run: python train.py")
        return
    for name in roles:
        node = written.get(name)
        if node is not None and not (isinstance(node.value, dict) and _is_given(node.value, "run")):
            message = 'the field "run" is missing, in this role and at the top level'
            at.into("roles").into(name).problem(node, message)


def _is_given(fields: dict[str, YamlNode], name: str) -> bool:
    return name in fields and fields[name].value is not None


def _check_size(roles: dict[str, dict[str, Any]], root: YamlNode, at: FieldPath) -> None:
    counts = [(_count(role.get("nodes")), procs_of(role)) for role in roles.values()]
    nodes, ranks = sum(nodes for nodes, _ in counts), sum(nodes * procs for nodes, procs in counts)
    spares = sum(role.get("spares") or 0 for role in roles.values())
    if nodes + spares > MAX_NODES and (len(counts) > 1 or spares):
        at.problem(root, f"the roles have {nodes + spares} nodes together, expected at most {MAX_NODES}")
    if ranks > MAX_RANKS:
        at.problem(root, f"the job has {ranks} ranks (nodes x procs), expected at most {MAX_RANKS}")


def _check_elastic(roles: dict[str, dict[str, Any]], values: Fields, root: YamlNode, at: FieldPath) -> None:
    """What a range of nodes cannot be, and cannot be together with."""
    for name, role in roles.items():
        if (bounds := impossible_range(role.get("run"))) is not None:
            message = f"the command of role {name} says --nnodes {bounds}, expected at least one node and min <= max"
            at.problem(root, message, hint=f"write --nnodes={_in_order(bounds)}, or leave it out and write nodes: N")
    elastic = [name for name, role in roles.items() if isinstance(role.get("nodes"), NodeRange)]
    if len(elastic) > 1:
        hint = "nodes: 2 in all roles but one"
        at.problem(root, f"the roles {', '.join(elastic)} have ranges of nodes, expected at most one", hint=hint)
    for name in elastic:
        if (fixed := fixed_count(roles[name].get("run"))) is not None:
            message = f"the command of role {name} says {fixed}, and its nodes are a range"
            at.problem(root, message, hint="leave it out of the command: it follows what the run has")
        if name in PASSIVE_ROLES:
            at.problem(root, f"the role {name} has a range of nodes, and no other role would notice its size change")
    if elastic and values.get("sweep") is not None:
        at.problem(root, "trials of a sweep have one size", hint="nodes: N, or a run of its own")


def _check_spares(roles: dict[str, dict[str, Any]], values: Fields, root: YamlNode, at: FieldPath) -> None:
    """A spare takes part in a restart in place, of a gang that has lost a node."""
    spared = [name for name, role in roles.items() if role.get("spares")]
    given = root.value if isinstance(root.value, dict) else {}
    is_misread = "retries" not in values and _is_given(given, "retries")
    retries = None if is_misread else values.get("retries", Retries())
    if spared and sum(_count(role.get("nodes")) for role in roles.values()) == 1:
        message = "the job has one node and a spare: nobody is left who could go on without its only node"
        at.problem(root, message, hint="drop `spares`, which `retries` do not need, or `nodes: 2`")
    if spared and retries is not None and not (retries.count and retries.restart == "in-place"):
        written = "`restart: new`" if retries.count else "no retries"
        message = f"the job has spares and {written}: that a spare takes a lost node's place is a retry, in place"
        at.problem(root, message, hint="`retries: 3`, or drop `spares`")
    elif spared and retries is not None and retries.on and not set(LOSSES) & set(retries.on):
        causes = ", ".join(map(str, retries.on))
        message = f"the job has spares and `retries.on: [{causes}]`: after the loss of a node, nothing is tried again"
        at.problem(root, message, hint="`on: [lost, preemption, ...]`, or drop `spares`")
    for name in spared:
        if isinstance(roles[name].get("nodes"), NodeRange):
            message = f"the role {name} has spares and a range of nodes: an elastic run goes on with those it has left"
            at.problem(root, message, hint="drop one of the two: `nodes: N` with `spares`, or the range alone")


def _in_order(bounds: str) -> str:
    low, high = sorted(max(1, int(bound)) for bound in bounds.split(":"))
    return f"{low}:{high}"


def _count(value: object) -> int:
    """Of a range its end: what is checked for the largest size holds for all."""
    return value.high if isinstance(value, NodeRange) else value if isinstance(value, int) else 1


def _bounds(value: object) -> tuple[int | None, int | None]:
    return (value.low, value.high) if isinstance(value, NodeRange) else (None, None)


def procs_of(role: Fields) -> int:
    procs = role.get("procs")
    gpus = role.get("gpus")
    if procs == "auto":
        return max(1, gpus.count) if isinstance(gpus, Gpus) else 1
    return _count(procs)


def make_roles(values: Fields) -> tuple[Role, ...]:
    return tuple(
        Role(
            name=name,
            run=without_range(role["run"]) if isinstance(role.get("nodes"), NodeRange) else role["run"],
            nodes=_count(role.get("nodes")),
            min_nodes=_bounds(role.get("nodes"))[0],
            max_nodes=_bounds(role.get("nodes"))[1],
            spares=role.get("spares") or 0,
            procs=procs_of(role),
            image=role.get("image"),
            env=role.get("env") or {},
            resources=Resources(
                gpus=role.get("gpus") or Gpus(),
                cpus=role.get("cpus"),
                memory=role.get("memory"),
                shm=role.get("shm"),
                disk=role.get("disk"),
            ),
        )
        for name, role in role_fields(values).items()
    )


def ends_of(values: Fields, roles: tuple[Role, ...]) -> tuple[str, ...]:
    names = tuple(role.name for role in roles)
    given: tuple[str, ...] = tuple(dict.fromkeys(values.get("ends") or ()))
    return given or tuple(name for name in names if name not in PASSIVE_ROLES) or names


def make_job(values: Fields, *, name: str, framework: Framework, reason: str) -> Job:
    """The Job; only called when there was no problem."""
    roles = make_roles(values)
    workdir = values.get("workdir", ".")
    return Job(
        name=name,
        roles=roles,
        framework=framework,
        framework_reason=reason,
        ends=ends_of(values, roles),
        setup=values.get("setup"),
        workdir=None if workdir == "none" else workdir,
        include=values.get("include", ()),
        exclude=values.get("exclude", ()),
        secrets=values.get("secrets", ()),
        volumes=values.get("volumes", ()),
        data=values.get("data", ()),
        checkpoints=values.get("checkpoints", Checkpoints()),
        artifacts=values.get("artifacts", ()),
        retries=values.get("retries", Retries()),
        grow=values.get("grow", "checkpoint"),
        batch=values.get("batch", "rank"),
        timeout_s=values.get("timeout"),
        grace_s=values.get("grace", 30.0),
        stall_s=values.get("stall"),
        queue=values.get("queue"),
        after=tuple(dict.fromkeys(values.get("after") or ())),
        priority=values.get("priority", 0),
        labels=values.get("labels", {}),
        aliases=tuple(dict.fromkeys(values.get("aliases", ()))),
        params=values.get("params") or {},
        sweep=values.get("sweep"),
        serve=values.get("serve"),
    )


def deciding_command(values: Fields) -> tuple[Command, list[str]]:
    """The command that tells the framework, and the names of all roles."""
    roles = make_roles(values)
    first = ends_of(values, roles)[0]
    return next(role.run for role in roles if role.name == first), [role.name for role in roles]
