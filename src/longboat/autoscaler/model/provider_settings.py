"""`providers` of the pools file: text to settings, with the lines of mistakes. What they do is in `kwok` and `exec`."""

from __future__ import annotations

from typing import Any, Literal

from longboat.core.jobs import Command, Value
from longboat.specs.fields.commands import COMMAND
from longboat.specs.fields.composites import AsWritten, Field, MapOf, Shape
from longboat.specs.fields.scalars import ChoiceOf, FieldPath, duration
from longboat.specs.yaml.yaml_tree import YamlNode

Verb = Literal["list", "grow", "shrink", "describe"]
VERBS: tuple[Verb, ...] = ("list", "grow", "shrink", "describe")


class ExecSettings(Value, frozen=True):
    """`describe` may be left out; a tuple is started as it is, a text by the shell."""

    list: Command
    grow: Command
    shrink: Command
    describe: Command | None = None
    timeout_s: float = 60.0
    env: dict[str, str] = {}
    folder: str | None = None  # where the commands start


class KwokSettings(Value, frozen=True):
    ready_after_s: float = 0.0  # the node is there and not ready for so long
    gpus_after_s: float = 0.0  # and its GPUs come so much later
    annotations: dict[str, str] = {}  # of every node


ProviderSettings = ExecSettings | KwokSettings

KINDS = ("exec", "kwok")
OF_EXEC = (*VERBS, "timeout", "env")
OF_KWOK = ("ready_after", "gpus_after", "annotations")
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"


def make_provider(values: dict[str, Any], node: YamlNode, at: FieldPath) -> ProviderSettings | None:
    kind = values.pop("kind", "exec" if "list" in values else None)
    if kind is None:
        at.problem(node, f'the field "kind" is missing: {" or ".join(KINDS)}')
        return None
    others = [name for name in values if name in (OF_KWOK if kind == "exec" else OF_EXEC)]
    if others:
        at.problem(node, f"{others[0]} is not a setting of a provider of the kind {kind}")
        return None
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


PROVIDER = Shape(
    fields=(
        Field(name="kind", kind=ChoiceOf(options=KINDS), doc="exec: your own commands; kwok: simulated nodes."),
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
