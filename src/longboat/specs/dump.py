"""Writes a Job as a job file. Reading the result gives the same Job, except `framework_reason`: "given"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from longboat.core.elastic.sizes import is_elastic_role
from longboat.core.jobs import DEFAULT_ROLE, Checkpoints, Gpus, Job, Keep, Retries, Role, Secret, Serve, Volume
from longboat.core.resources import format_duration, format_quantity
from longboat.specs.fields.composites import Shape, kind_below
from longboat.specs.fields.job_fields import JOB
from longboat.specs.fields.sweeps import sweep_to_mapping
from longboat.specs.yaml.yaml_tree import resolve


def job_to_mapping(job: Job) -> dict[str, Any]:
    """Only what differs from the defaults, in the order of the documentation."""
    single = len(job.roles) == 1 and job.roles[0].name == DEFAULT_ROLE
    shown: dict[str, Any] = {"name": job.name, "framework": job.framework}
    if single:
        shown.update(_role(job.roles[0]))
    else:
        shown["roles"] = {role.name: _role(role) for role in job.roles}
        shown["ends"] = list(job.ends)
    shown.update(_texts(job))
    if job.workdir != ".":
        shown["workdir"] = job.workdir
    if job.secrets:
        shown["secrets"] = _secrets(job.secrets)
    if job.volumes:
        shown["volumes"] = {volume.target: _volume(volume) for volume in job.volumes}
    if job.data:
        shown["data"] = [
            _given({"url": data.url, "to": data.to, "sha256": data.sha256, "unpack": None if data.unpack else False})
            for data in job.data
        ]
    if job.checkpoints != Checkpoints():
        shown["checkpoints"] = _given(
            {"to": job.checkpoints.to, "keep": _keep(job.checkpoints.keep), "resume": job.checkpoints.resume}
        )
    if job.retries != Retries():
        shown["retries"] = _retries(job.retries)
    shown.update(_limits(job))
    if job.params:
        shown["params"] = dict(job.params)
    if job.sweep is not None:
        shown["sweep"] = sweep_to_mapping(job.sweep)
    if job.serve is not None:
        shown["serve"] = _serve(job.serve)
    return _escaped_entries(shown, JOB)


def _texts(job: Job) -> dict[str, Any]:
    lists = {
        "include": job.include,
        "exclude": job.exclude,
        "artifacts": job.artifacts,
        "after": job.after,
        "aliases": job.aliases,
    }
    texts = {"setup": job.setup, "queue": job.queue, "labels": dict(job.labels) or None}
    return _given({**texts, **{name: list(values) or None for name, values in lists.items()}})


def _limits(job: Job) -> dict[str, Any]:
    return _given(
        {
            "grow": None if job.grow == "checkpoint" else job.grow,
            "batch": None if job.batch == "rank" else job.batch,
            "timeout": None if job.timeout_s is None else format_duration(job.timeout_s),
            "grace": None if job.grace_s == 30.0 else format_duration(job.grace_s),
            "stall": None if job.stall_s is None else format_duration(job.stall_s),
            "priority": job.priority or None,
        }
    )


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _role(role: Role) -> dict[str, Any]:
    needs = role.resources
    return _given(
        {
            "run": role.run if isinstance(role.run, str) else list(role.run),
            "nodes": {"min": role.min_nodes, "max": role.max_nodes} if is_elastic_role(role) else role.nodes,
            "spares": role.spares or None,
            "procs": role.procs,
            "image": role.image,
            "env": dict(role.env) or None,
            "gpus": _gpus(needs.gpus),
            "cpus": needs.cpus,
            "memory": None if needs.memory is None else format_quantity(needs.memory),
            "shm": None if needs.shm is None else format_quantity(needs.shm),
            "disk": None if needs.disk is None else format_quantity(needs.disk),
        }
    )


def _gpus(gpus: Gpus) -> Any:
    if gpus == Gpus():
        return None
    if gpus.memory is None:
        return f"{gpus.type}:{gpus.count}" if gpus.type else gpus.count
    return _given({"count": gpus.count, "type": gpus.type, "memory": format_quantity(gpus.memory)})


def _secrets(secrets: tuple[Secret, ...]) -> Any:
    sources = {s.name: _given({"env": s.env, "file": s.file, "store": s.store}) for s in secrets}
    return sources if any(sources.values()) else list(sources)


def _volume(volume: Volume) -> dict[str, Any]:
    return _given(
        {
            "claim": volume.claim,
            "path": volume.path,
            "nfs": volume.nfs,
            "scratch": ("memory" if volume.medium == "memory" else True) if volume.scratch else None,
            "read_only": volume.read_only or None,
            "size": None if volume.size is None else format_quantity(volume.size),
            "class": volume.storage_class,
            "access": volume.access,
        }
    )


def _keep(keep: int | Keep) -> Any:
    if isinstance(keep, int):
        return keep
    every = None if keep.every_s is None else format_duration(keep.every_s)
    return _given({"last": keep.last, "best": keep.best, "metric": keep.metric, "goal": keep.goal, "every": every})


def _serve(serve: Serve) -> dict[str, Any]:
    """Only what differs from the defaults, as everywhere in a written job file."""
    needs, usual, most = serve.resources, Serve(), serve.max_replicas
    fields = {
        "run": serve.run if serve.run is None or isinstance(serve.run, str) else list(serve.run),
        "replicas": serve.replicas if most is None else {"min": serve.replicas, "max": most},
        "in_flight": serve.in_flight,
        "port": serve.port,
        "ready": serve.ready,
        "live": serve.live,
        "golden": serve.golden,
        "tolerance": serve.tolerance,
        "start": format_duration(serve.start_s),
        "drain": format_duration(serve.drain_s),
        "gpus": _gpus(needs.gpus),
        "cpus": needs.cpus,
        "memory": None if needs.memory is None else format_quantity(needs.memory),
    }
    plain = {"replicas": 1, "in_flight": usual.in_flight, "golden": True, "start": "10m", "drain": "30s"}
    return _given({name: value for name, value in fields.items() if value != plain.get(name)})


def _retries(retries: Retries) -> dict[str, Any]:
    backoff = None if retries.backoff_s == 1.0 else format_duration(retries.backoff_s)
    restart = None if retries.restart == "in-place" else retries.restart
    return _given({"count": retries.count, "on": list(retries.on) or None, "backoff": backoff, "restart": restart})


def _escaped(value: Any, kind: object) -> Any:
    """`${` doubled where it would be taken for a variable when the text is read."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, list):
        return [_escaped(item, kind_below(kind, str(index))) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return _escaped_entries(value, kind)
    return value


def _escaped_entries(fields: dict[str, Any], kind: object) -> dict[str, Any]:
    return {key: item if _is_kept(kind, key) else _escaped(item, kind_below(kind, key)) for key, item in fields.items()}


def _is_kept(kind: object, key: str) -> bool:
    field = kind.field(key) if isinstance(kind, Shape) else None
    return field is not None and not field.substituted


def to_yaml(mapping: Mapping[str, Any]) -> str:
    """YAML 1.2 text; what YAML 1.1 would read otherwise is quoted, so both read it the same."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    Dumper.add_representer(str, _represent_text)
    text: str = yaml.dump(
        dict(mapping), Dumper=Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True, width=100_000
    )
    return text


def _represent_text(dumper: Any, text: str) -> Any:
    style = None
    if not text.replace("\n", "").isprintable():  # tabs, and what YAML takes for a line break
        style = '"'
    elif "\n" in text:
        style = "|"
    elif not isinstance(resolve(text), str) or "${" in text:
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)
