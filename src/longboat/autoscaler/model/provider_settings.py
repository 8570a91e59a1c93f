"""`providers` of the pools file: text to settings, with the lines of mistakes. What they do is in `providers`."""

from __future__ import annotations

from typing import Any, Literal

from longboat.core.jobs import Command, Value
from longboat.specs.fields.commands import COMMAND
from longboat.specs.fields.composites import AsWritten, Field, MapOf, Shape
from longboat.specs.fields.scalars import ChoiceOf, FieldPath, Text, duration
from longboat.specs.yaml.yaml_tree import YamlNode

Verb = Literal["list", "grow", "shrink", "describe"]
VERBS: tuple[Verb, ...] = ("list", "grow", "shrink", "describe")


class ExecSettings(Value, frozen=True):
    """`describe` may be left out; a tuple is started as it is, a text by the shell."""

    list: Command
    grow: Command
    shrink: Command
    describe: Command | None = None
    timeout_s: float = 60.0  # for each command: a cloud's own command line answers within seconds, and the loop waits
    env: dict[str, str] = {}
    folder: str | None = None  # where the commands start


class KwokSettings(Value, frozen=True):
    ready_after_s: float = 0.0  # the node is there and not ready for so long
    gpus_after_s: float = 0.0  # and its GPUs come so much later
    annotations: dict[str, str] = {}  # of every node


class CloudSettings(Value, frozen=True):
    """A cluster in a cloud: its pools are those that the cloud shows."""

    cloud: str
    cluster: str
    region: str = ""
    resource_group: str = ""  # of Azure
    subscription: str = ""  # of Azure; else that of the environment
    project: str = ""  # of Google Cloud; else that of the environment or the credentials
    growth_s: float = 0.0  # of its pools of spot machines


ProviderSettings = ExecSettings | KwokSettings | CloudSettings

CLOUDS = ("aws", "azure", "gcp")
KINDS = ("exec", "kwok", *CLOUDS)
_FIELDS = {
    "exec": (*VERBS, "timeout", "env"),
    "kwok": ("ready_after", "gpus_after", "annotations"),
    "aws": ("cluster", "region", "growth"),
    "azure": ("cluster", "resource_group", "subscription", "growth"),
    "gcp": ("cluster", "region", "project", "growth"),
}
_OPTIONAL = ("subscription", "project", "growth")
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"


def make_provider(values: dict[str, Any], node: YamlNode, at: FieldPath) -> ProviderSettings | None:
    name = at.path.rpartition(".")[2]
    kind = values.pop("kind", "exec" if "list" in values else name if name in CLOUDS else None)
    if kind is None:
        at.problem(node, f'the field "kind" is missing: {" or ".join(KINDS)}')
        return None
    others = [name for name in values if name not in _FIELDS[kind]]
    if others:
        at.problem(node, f"{others[0]} is not a setting of a provider of the kind {kind}")
        return None
    if kind in CLOUDS:
        return _cloud(kind, values, node, at)
    if kind == "kwok":
        return KwokSettings(
            ready_after_s=values.get("ready_after", 0.0),
            gpus_after_s=values.get("gpus_after", 0.0),
            annotations=values.get("annotations", {}),
        )
    missing = [verb for verb in VERBS if verb not in values and verb != "describe"]
    if missing:
        at.problem(node, f'the field "{missing[0]}" is missing: a command; list, grow and shrink are needed')
        return None
    commands = {verb: values[verb] for verb in VERBS if verb in values}
    return ExecSettings(**commands, timeout_s=values.get("timeout", 60.0), env=values.get("env", {}))


def _cloud(kind: str, values: dict[str, Any], node: YamlNode, at: FieldPath) -> CloudSettings | None:
    missing = [name for name in _FIELDS[kind] if name not in values and name not in _OPTIONAL]
    if missing:
        at.problem(node, f'the field "{missing[0]}" is missing')
        return None
    return CloudSettings(cloud=kind, growth_s=values.pop("growth", 0.0), **values)


_CLOUD_NAME = Text(expected="a name of letters, digits, - and _", pattern=r"[A-Za-z0-9][-A-Za-z0-9_]{0,99}")
_GROUP_NAME = Text(expected="a name of letters, digits and -_.()", pattern=r"[-A-Za-z0-9_.()]{0,89}[-A-Za-z0-9_()]")

PROVIDER = Shape(
    fields=(
        Field(
            name="kind",
            kind=ChoiceOf(options=KINDS),
            doc="exec: your commands; kwok: simulated nodes; aws, azure, gcp: a cloud.",
        ),
        Field(name="cluster", kind=_CLOUD_NAME, doc="Of a cloud: the cluster's name there."),
        Field(name="region", kind=_CLOUD_NAME, doc="Of a cloud: where the cluster is."),
        Field(name="resource_group", kind=_GROUP_NAME, doc="Of Azure: the resource group of the cluster."),
        Field(name="subscription", kind=_CLOUD_NAME, doc="Of Azure.", default="AZURE_SUBSCRIPTION_ID"),
        Field(name="project", kind=_CLOUD_NAME, doc="Of Google Cloud.", default="GOOGLE_CLOUD_PROJECT"),
        Field(name="growth", kind=duration(0), doc="Of a cloud: `growth` of its pools of spot machines.", default="0s"),
        Field(name="list", kind=COMMAND, doc="Prints the machines."),
        Field(name="grow", kind=COMMAND, doc="Makes machines."),
        Field(name="shrink", kind=COMMAND, doc="Deletes machines."),
        Field(name="describe", kind=COMMAND, doc="Prints what a machine offers."),
        Field(name="timeout", kind=duration(0.1), doc="Of one command.", default="1m"),
        Field(
            name="env",
            kind=MapOf(item=AsWritten(), what="variables", key=_VARIABLE, key_expected="the name of a variable"),
            doc="For the commands.",
        ),
        Field(name="ready_after", kind=duration(0), doc="Of simulated nodes.", default="0s"),
        Field(name="gpus_after", kind=duration(0), doc="Of simulated nodes.", default="0s"),
        Field(
            name="annotations",
            kind=MapOf(item=AsWritten(), what="annotations", key=r"[-A-Za-z0-9_./]+", key_expected="an annotation"),
            doc="Of simulated nodes.",
        ),
    ),
    build=make_provider,
)

PROVIDERS = MapOf(
    item=PROVIDER, what="providers", key=r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", key_expected="a short name"
)
