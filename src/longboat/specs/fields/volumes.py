"""The field `volumes` of the job file: what the ranks see at a path. Part of the table in `field_table` and
`job_fields`."""

from __future__ import annotations

from typing import Any

import msgspec

from longboat.core.jobs import ACCESS, Volume
from longboat.specs.fields import rules
from longboat.specs.fields.composites import Field, Shape
from longboat.specs.fields.scalars import ChoiceOf, FieldPath, Flag, Text, quote, size
from longboat.specs.yaml.yaml_tree import YamlNode

_SOURCES = ("claim", "path", "nfs", "scratch")


class Scratch(Flag, frozen=True):
    """`true`, or where it is: `disk`, `memory`."""

    expected: str = "true, false, disk or memory"

    def read(self, node: YamlNode, at: FieldPath) -> Any:
        return node.value if node.value in ("disk", "memory") else super().read(node, at)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [{"type": "boolean"}, {"enum": ["disk", "memory"]}]}


def _volume(values: dict[str, Any], node: YamlNode, at: FieldPath) -> Volume | None:
    given = [name for name in _SOURCES if values.get(name)]
    if len(given) != 1:
        sources = " and ".join(given) if given else "none"
        at.problem(node, f"found {sources}, expected exactly one of {', '.join(_SOURCES)}")
        return None
    if values.get("scratch") and values.get("read_only"):
        at.problem(node, "a scratch volume is empty at the start, so it cannot be read_only")
        return None
    if fault := _made_fault(values):
        at.problem(node, fault)
        return None
    if "class" in values:
        values["storage_class"] = values.pop("class")
    if isinstance(values.get("scratch"), str):
        values["medium"] = values["scratch"]
        values["scratch"] = True
    return Volume(target="", **values)


def _made_fault(values: dict[str, Any]) -> str | None:
    """What size, class and access say of a claim that is made, they cannot say of something else."""
    if "size" in values and not (values.get("claim") or values.get("scratch")):
        return "found size, which is that of a claim that is made or of scratch"
    for name in ("class", "access"):
        if name in values and not (values.get("claim") and "size" in values):
            return f"found {name} of a claim that is not made here: size is missing"
    return None


def volumes_of(values: dict[str, Any], node: YamlNode, at: FieldPath) -> tuple[Volume, ...]:
    seen: dict[str, str] = {}
    made: list[Volume] = []
    for target, volume in values.items():
        clean = rules.clean_target(target)
        if clean in seen:
            place = node.keys.get(target, node.place)
            at.mistakes.add(place, at.path, f"{quote(target)} and {quote(seen[clean])} are the same target")
        seen[clean] = target
        if volume is not None:
            made.append(msgspec.structs.replace(volume, target=clean))
    return tuple(made)


VOLUME = Shape(
    fields=(
        Field(
            name="claim",
            kind=Text(
                expected=f"the name of a PersistentVolumeClaim: {rules.SUBDOMAIN_EXPECTED}", pattern=rules.SUBDOMAIN
            ),
            doc="A PersistentVolumeClaim.",
            example="tensorflow-fs",
        ),
        Field(name="path", kind=Text(expected="a folder"), doc="A folder of the machine.", example="/mnt/data"),
        Field(
            name="nfs",
            kind=Text(expected="server:/path", pattern=rules.NFS),
            doc="An NFS export.",
            example='"nas.example.org:/export/data"',
        ),
        Field(
            name="scratch",
            kind=Scratch(),
            doc="Empty at the start, gone at the end; disk or memory where the engine has the choice.",
            default="false",
            example="true",
        ),
        Field(
            name="read_only",
            kind=Flag(),
            doc="The ranks cannot write to it; on this machine they can, and a note says so.",
            default="false",
            example="true",
        ),
        Field(
            name="size",
            kind=size(),
            doc="Of a claim: it is made with this size if it does not exist. Of scratch: it may hold this much.",
            example="100Gi",
        ),
        Field(
            name="class",
            kind=Text(expected=f"a StorageClass: {rules.SUBDOMAIN_EXPECTED}", pattern=rules.SUBDOMAIN),
            doc="StorageClass of a claim that is made.",
            default="the cluster's",
            example="fast",
        ),
        Field(
            name="access",
            kind=ChoiceOf(options=ACCESS),
            doc="Access mode of a claim that is made.",
            default="ReadWriteMany for more than one node, else ReadWriteOnce",
            example="ReadWriteMany",
        ),
    ),
    build=_volume,
    short=Text(expected="a folder of the machine"),
    short_name="path",
)
