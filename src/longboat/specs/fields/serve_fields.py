"""The field `serve` of the job file: how checkpoints of its runs are served."""

from __future__ import annotations

import re
from typing import Any

from longboat.core.jobs import Gpus, Resources, Serve
from longboat.specs.fields.commands import COMMAND, Script
from longboat.specs.fields.composites import Field, Shape
from longboat.specs.fields.field_table import GPUS
from longboat.specs.fields.scalars import CPUS, ChoiceOf, FieldPath, Flag, Quantified, Text, WholeNumber, duration, size
from longboat.specs.yaml.yaml_tree import YamlNode

MAX_REPLICAS = 1000  # each has a probe and connections of its own in one proxy
PATH = r"/[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*"
_PATH = Text(expected="the path of a URL, for example /healthz", pattern=PATH)
HOST = r"(\*\.)?[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*"
_HOST = Text(expected="a host name, for example model.example.org", pattern=HOST, longest=253)
_TOLERANCE = Quantified(
    expected="a number", parse=float, pattern=r"[0-9]*\.?[0-9]+(e-?[0-9]+)?", low=0.0, high=1e9, limits="from 0 to 1e9"
)
_RENAMED = {"start": "start_s", "drain": "drain_s"}


def is_path(text: str) -> bool:
    return re.fullmatch(PATH, text) is not None


def is_host(text: str) -> bool:
    return len(text) <= 253 and re.fullmatch(HOST, text) is not None


def _replicas(values: dict[str, Any], node: YamlNode, at: FieldPath) -> tuple[int, int | None]:
    least, most = values.get("min", 1), values.get("max")
    if most is not None and most < least:
        at.problem(node, f"found at least {least} and at most {most} replicas")
    return least, most


REPLICAS = Shape(
    short=WholeNumber(low=1, high=MAX_REPLICAS),
    short_name="min",
    build=_replicas,
    fields=(
        Field(
            name="min",
            kind=WholeNumber(low=1, high=MAX_REPLICAS),
            doc="At least so many; one always stays.",
            default="1",
            example="1",
        ),
        Field(
            name="max",
            kind=WholeNumber(low=1, high=MAX_REPLICAS),
            doc="Scaled up to so many, by requests in flight.",
            default="min",
            example="4",
        ),
    ),
)


def _serve(values: dict[str, Any], node: YamlNode, at: FieldPath) -> Serve:
    fields = {_RENAMED.get(name, name): value for name, value in values.items()}
    if "replicas" in fields:
        fields["replicas"], fields["max_replicas"] = fields["replicas"]
    gpus, cpus, memory = fields.pop("gpus", Gpus()), fields.pop("cpus", None), fields.pop("memory", None)
    return Serve(**fields, resources=Resources(gpus=gpus, cpus=cpus, memory=memory))


SERVE = Shape(
    short=Script(expected="a command, run by the shell"),
    short_name="run",
    build=_serve,
    fields=(
        Field(
            name="run",
            kind=COMMAND,
            doc="The server of one replica; it listens on $PORT.",
            default="given to `longboat serve` after --",
            example="python app.py --port $PORT",
            substituted=False,
        ),
        Field(
            name="replicas",
            kind=REPLICAS,
            doc="Number of server processes; a number is `min`.",
            default="1",
            example="{min: 1, max: 4}",
        ),
        Field(
            name="in_flight",
            kind=WholeNumber(low=1, high=100_000),
            doc="Requests in flight per replica above which replicas are added.",
            default="8",
            example="16",
        ),
        Field(
            name="port",
            kind=WholeNumber(low=1, high=65535),
            doc="Port of the service's address.",
            default="a free one",
            example="8080",
        ),
        Field(
            name="ingress",
            kind=_HOST,
            doc="In a cluster: host name of an Ingress that leads to it.",
            example="model.example.org",
        ),
        Field(
            name="ready",
            kind=_PATH,
            doc="Path that answers 2xx or 3xx once a replica may take requests.",
            default="the replica accepts connections",
            example="/healthz",
        ),
        Field(
            name="live",
            kind=_PATH,
            doc="Path that is asked while it runs; a replica that fails it three times is restarted.",
            default="the path of `ready`",
            example="/livez",
        ),
        Field(
            name="golden",
            kind=Flag(),
            doc="Whether a replica must give the golden answers of its checkpoint before it takes requests.",
            default="true",
            example="false",
        ),
        Field(
            name="tolerance",
            kind=_TOLERANCE,
            doc="How far numbers of golden answers may differ, relative to those above 1.",
            default="as it was saved",
            example="0.01",
        ),
        Field(
            name="follow",
            kind=ChoiceOf(options=("newest", "best", "promoted")),
            doc="Which checkpoints of the run replace the one that is served, as they come.",
            default="the one that is served stays",
            example="best",
        ),
        Field(
            name="start",
            kind=duration(0.1, 86400.0),
            doc="A replica that is not ready after this is restarted.",
            default="10m",
            example="30m",
        ),
        Field(
            name="drain",
            kind=duration(0.0, 86400.0),
            doc="How long requests in flight may take when their replica goes.",
            default="30s",
            example="5m",
        ),
        Field(name="gpus", kind=GPUS, doc="GPUs per replica.", default="0", example="1"),
        Field(name="cpus", kind=CPUS, doc="CPUs per replica.", example="2"),
        Field(name="memory", kind=size(), doc="Memory per replica.", example="8Gi"),
    ),
)
