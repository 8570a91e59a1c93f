"""The table of all fields of the job file. Validation, the JSON schema and the check of the documentation read it."""

from __future__ import annotations

import re
from typing import Any

from longboat.core import resources
from longboat.core.first_failure import NEVER_RETRIED
from longboat.core.jobs import (
    CAUSES,
    Checkpoints,
    DataImport,
    Gpus,
    Keep,
    Retries,
    Secret,
)
from longboat.specs.fields import rules
from longboat.specs.fields.commands import COMMAND
from longboat.specs.fields.composites import AsWritten, Field, ListOf, MapOf, Shape
from longboat.specs.fields.node_counts import NODES
from longboat.specs.fields.scalars import (
    CPUS,
    ChoiceOf,
    FieldPath,
    Flag,
    Text,
    WholeNumber,
    duration,
    nearest,
    quote,
    size,
)
from longboat.specs.yaml.yaml_tree import YamlNode

MAX_PROCS = 1024  # on one node: more than any machine has CPUs for
ALIASES = ("skypilot", "dstack")


NO_GPUS = "write 0 for no GPUs, or how many of the type"


class GpuText(Text, frozen=True):
    """`2`, `H100`, `H100:8`."""

    def read(self, node: YamlNode, at: FieldPath) -> Any:
        if isinstance(node.value, int) and not isinstance(node.value, bool):
            count = WholeNumber(low=0, high=resources.MAX_GPUS).read(node, at)
            return Gpus(count=count) if isinstance(count, int) else None
        if not isinstance(node.value, str):
            at.wrong(node, self.expected)
            return None
        try:
            gpus = resources.parse_gpus(node.value)
        except ValueError:
            at.wrong(node, self.expected)
            return None
        if gpus.count > resources.MAX_GPUS:
            at.wrong(node, f"at most {resources.MAX_GPUS} GPUs per node")
            return None
        if gpus.type is not None and not gpus.count:
            at.problem(node, f"found {quote(node.value)}: a type of GPU and none of them", hint=NO_GPUS)
            return None
        return gpus

    def schema(self) -> dict[str, Any]:
        count = {"type": "integer", "minimum": 0, "maximum": resources.MAX_GPUS}
        return {"anyOf": [count, {"type": "string", "pattern": resources.GPUS_PATTERN}]}


class RetryCause(Text, frozen=True):
    """An exit code or the name of a cause."""

    expected: str = "an exit code from 1 to 255, or one of " + ", ".join(c for c in CAUSES if c not in NEVER_RETRIED)

    def read(self, node: YamlNode, at: FieldPath) -> Any:
        if isinstance(node.value, int) and not isinstance(node.value, bool):
            return WholeNumber(low=1, high=255).read(node, at)
        if node.value in NEVER_RETRIED:
            at.problem(node, f"a run that ended by {node.value} is never retried")
            return None
        if isinstance(node.value, str) and node.value in CAUSES:
            return node.value
        at.wrong(node, self.expected + (nearest(node.value, CAUSES) if isinstance(node.value, str) else ""))
        return None

    def schema(self) -> dict[str, Any]:
        code = {"type": "integer", "minimum": 1, "maximum": 255}
        return {"anyOf": [code, {"enum": [cause for cause in CAUSES if cause not in NEVER_RETRIED]}]}


class Workdir(Text, frozen=True):
    def read(self, node: YamlNode, at: FieldPath) -> str | None:
        return None if node.value is None else super().read(node, at)


def _gpus(values: dict[str, Any], node: YamlNode, at: FieldPath) -> Gpus:
    if values.get("count") == 0 and (values.get("type") or values.get("memory")):
        at.problem(node, "found the count 0 beside a type or memory of GPUs", hint=NO_GPUS)
    return Gpus(**{"count": 1, **values})


def _keep(values: dict[str, Any], node: YamlNode, at: FieldPath) -> Keep | int | None:
    if values.get("best") and "metric" not in values:
        at.problem(node, "the best of which metric?", hint="metric: accuracy, as the trainer reports it")
        return None
    if "every" in values:
        values["every_s"] = values.pop("every")
    if "metric" in values:
        values.setdefault("best", 1)
    keep = Keep(**values)
    return keep.last if keep == Keep(last=keep.last) else keep


def _checkpoints(values: dict[str, Any], node: YamlNode, at: FieldPath) -> Checkpoints:
    return Checkpoints(**values)


def _retries(values: dict[str, Any], node: YamlNode, at: FieldPath) -> Retries:
    if "backoff" in values:
        values["backoff_s"] = values.pop("backoff")
    return Retries(**values)


def _data(values: dict[str, Any], node: YamlNode, at: FieldPath) -> DataImport:
    return DataImport(**values)


def _secret(values: dict[str, Any], node: YamlNode, at: FieldPath) -> Secret | None:
    if len(values) > 1:
        at.problem(node, f"found {' and '.join(values)}, expected one of env, file, store")
        return None
    return Secret(name="", **values)


class SecretName(Text, frozen=True):
    """The name of a secret. A message never repeats what was written: it may be the secret itself."""

    expected: str = "the NAME of a secret, a variable such as HF_TOKEN; never its value"

    def read(self, node: YamlNode, at: FieldPath) -> Any:
        name = node.value
        if isinstance(name, str) and re.fullmatch(rules.ENV, name) and not rules.looks_like_secret_value(name):
            return Secret(name=name)
        at.problem(node, f"expected {self.expected}")
        return None

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^{rules.ENV}$"}


class SecretMap(MapOf, frozen=True):
    def read(self, node: YamlNode, at: FieldPath) -> Any:
        if not isinstance(node.value, dict):
            at.problem(node, "expected a list of names, or a mapping of names to where their values are read")
            return None
        made = []
        for key, item in node.value.items():
            named = SecretName().read(YamlNode(key, node.keys.get(key, node.place)), at)
            if named is None:
                continue
            source = self._source(key, item, at.into(key))
            if source is not None:
                made.append(Secret(name=key, env=source.env, file=source.file, store=source.store))
        return tuple(made)

    def _source(self, key: str, item: YamlNode, at: FieldPath) -> Secret | None:
        if item.value is None:
            return Secret(name=key)
        if not isinstance(item.value, dict):
            hint = f"write {key}: {{env: VARIABLE}}, {{file: PATH}} or {{store: NAME}}"
            at.problem(item, "a secret's value must not be written in a job file", hint=hint)
            return None
        source = self.item.read(item, at)
        return source if isinstance(source, Secret) else None


def _text(expected: str, pattern: str | None = None, **more: Any) -> Text:
    return Text(expected=expected, pattern=pattern, **more)


GLOBS = ListOf(item=_text("a glob pattern such as *.py", check=rules.inside_fault), what="glob patterns")

GPUS = Shape(
    fields=(
        Field(
            name="count",
            kind=WholeNumber(low=0, high=resources.MAX_GPUS),
            doc="GPUs per node.",
            default="1",
            example="8",
        ),
        Field(
            name="type",
            kind=_text("a type of GPU such as H100", resources.GPU_TYPE_PATTERN),
            doc="The type; any type if absent.",
            example="H100",
        ),
        Field(name="memory", kind=size(), doc="Memory of each GPU, at least.", example="80Gi"),
    ),
    build=_gpus,
    short=GpuText(expected=resources.GPUS),
    unknown_hint=lambda key, node: f"write {key}:{node.value}" if isinstance(node.value, int) else None,
)

KEEP = Shape(
    fields=(
        Field(
            name="last",
            kind=WholeNumber(low=0, high=10_000),
            doc="The newest so many; 0 keeps all.",
            default="3",
            example="3",
        ),
        Field(
            name="best",
            kind=WholeNumber(low=0, high=10_000),
            doc="Besides, so many with the best `metric`.",
            default="0",
        ),
        Field(
            name="metric",
            kind=_text("the name of a metric", r"[^\x00-\x1f]{1,200}"),
            doc="The metric of `best`, as `longboat.step` or `longboat.checkpoint` was told it.",
            example="accuracy",
        ),
        Field(
            name="goal",
            kind=ChoiceOf(options=("max", "min")),
            doc="Whether the best value of `metric` is the highest or the lowest.",
            default="max",
            example="min",
        ),
        Field(name="every", kind=duration(1.0), doc="Besides, one for each period of this length.", example="1h"),
    ),
    build=_keep,
    short=WholeNumber(low=0, high=10_000),
)

CHECKPOINTS = Shape(
    fields=(
        Field(
            name="to",
            kind=_text(rules.PLACE_EXPECTED, check=rules.checkpoint_fault),
            doc="Folder for checkpoints, relative to the job file, or a name in an object store (s3://, gs://, az://);"
            " each run gets a folder of its own inside.",
            example="./checkpoints",
        ),
        Field(
            name="keep",
            kind=KEEP,
            doc="How many complete checkpoints are kept, 0 keeps all; or a mapping that keeps the best too.",
            default="3",
            example="{last: 3, best: 1, metric: accuracy}",
        ),
        Field(
            name="resume",
            kind=_text("the name of a run, a folder, or an address in an object store", check=rules.place_fault),
            doc="Start from the newest complete checkpoint of this run, folder or address in an object store.",
            example="digits-4",
        ),
    ),
    build=_checkpoints,
    short=_text(rules.PLACE_EXPECTED, check=rules.checkpoint_fault),
    short_name="to",
)

RETRIES = Shape(
    fields=(
        Field(
            name="count",
            kind=WholeNumber(low=0, high=1000),
            doc="How often a failed run is started again.",
            default="0",
            example="2",
        ),
        Field(
            name="on",
            kind=ListOf(item=RetryCause(), what="exit codes and causes"),
            doc="Exit codes and causes that are retried; empty means every failure.",
            default="[]",
            example="[oom, lost, 137]",
        ),
        Field(
            name="backoff",
            kind=duration(0.0, 3600.0),
            doc="Wait before the first retry; doubles up to a minute.",
            default="1s",
            example="10s",
        ),
        Field(
            name="restart",
            kind=ChoiceOf(options=("in-place", "new")),
            doc="`in-place` keeps working copy, data and setup where the launchers live; `new` makes all of it anew.",
            default="in-place",
            example="new",
        ),
    ),
    build=_retries,
    short=WholeNumber(low=0, high=1000),
    short_name="count",
)

DATA = Shape(
    fields=(
        Field(
            name="url",
            kind=_text(rules.URL_EXPECTED, rules.URL, check=rules.url_fault),
            doc="Where it comes from: https, http, s3, gs, az or file.",
            example="https://example.org/data.tar.gz",
            required=True,
        ),
        Field(
            name="to",
            kind=_text("a folder", check=rules.destination_fault),
            doc="Folder it is put into; relative to the working copy, or inside a volume.",
            example="data",
            required=True,
        ),
        Field(
            name="sha256",
            kind=_text("64 hexadecimal digits", rules.SHA256),
            doc="The file must have this hash.",
            example="e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        ),
        Field(name="unpack", kind=Flag(), doc="Unpack an archive.", default="true", example="false"),
    ),
    build=_data,
)

SECRET = Shape(
    fields=(
        Field(
            name="env",
            kind=_text(rules.ENV_EXPECTED, rules.ENV, hidden=True),
            doc="Read from this variable of the submitter.",
            default="the same name",
            example="MY_HF_TOKEN",
            substituted=False,
        ),
        Field(
            name="file",
            kind=_text("a file", hidden=True),
            doc="Read from this file.",
            example="~/.secrets/hf",
            substituted=False,
        ),
        Field(
            name="store",
            kind=_text("the name of a stored secret", hidden=True),
            doc="Read from the engine's own store.",
            example="hf-token",
            substituted=False,
        ),
    ),
    build=_secret,
)

ROLE_FIELDS = (
    Field(
        name="run",
        kind=COMMAND,
        doc="The command: text is run by the shell, a list is executed as it is.",
        default="required",
        example="python train.py --epochs 3",
        substituted=False,
    ),
    Field(
        name="image",
        kind=_text(rules.IMAGE_EXPECTED, rules.IMAGE),
        doc="Container image, for engines that use one.",
        example="pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime",
    ),
    Field(
        name="env",
        kind=MapOf(item=AsWritten(), what="variables and their values", key=rules.ENV, key_expected=rules.ENV_EXPECTED),
        doc="Environment variables. Values are kept exactly as written.",
        default="{}",
        example="{LR: 1e-3, MODE: fast}",
    ),
    Field(name="nodes", kind=NODES, doc="Nodes of each role; a range for an elastic one.", default="1", example="2"),
    Field(
        name="procs",
        kind=WholeNumber(low=1, high=MAX_PROCS, word="auto"),
        doc="Processes per node; auto is one per GPU, or 1 without GPUs.",
        default="1",
        example="auto",
    ),
    Field(name="gpus", kind=GPUS, doc="GPUs per node.", default="0", example="H100:8"),
    Field(name="cpus", kind=CPUS, doc="CPUs per node.", example="0.5"),
    Field(name="memory", kind=size(), doc="Memory per node.", example="16Gi"),
    Field(name="shm", kind=size(), doc="Shared memory (/dev/shm) per node.", example="8Gi"),
    Field(name="disk", kind=size(), doc="Scratch disk per node.", example="100GB"),
)
ROLE = Shape(fields=ROLE_FIELDS)
