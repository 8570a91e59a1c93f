"""Prints the JSON schema of a managed cluster of AKS, from the types of Azure's own client library (wire names).

Run by the Python of the environment that has azure-mgmt-containerservice. Unknown fields are not allowed.
"""

from __future__ import annotations

import datetime as dt
import enum
import json
import typing

import typing_extensions
from azure.mgmt.containerservice import models, types

SCALARS = {str: "string", dt.datetime: "string", bool: "boolean", int: "integer", float: "number"}
NAMES = {**{name: each for name, each in vars(models).items() if isinstance(each, type)}, **vars(types)}
definitions: dict[str, typing.Any] = {}


def schema(kind: typing.Any) -> dict[str, typing.Any]:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing_extensions.Required:
        return schema(inner[0])
    if origin is typing.Union:
        enums = [each for each in inner if isinstance(each, type) and issubclass(each, enum.Enum)]
        return schema(enums[0]) if enums else {"anyOf": [schema(each) for each in inner]}
    if origin is typing.Literal:
        return {"enum": list(inner)}
    if origin is list:
        return {"type": "array", "items": schema(inner[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema(inner[1])}
    if kind in SCALARS:
        return {"type": SCALARS[kind]}
    if hasattr(kind, "__required_keys__"):
        return mapping(kind)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [each.value for each in kind]}
    return {}


def mapping(kind: typing.Any) -> dict[str, typing.Any]:
    name = kind.__name__
    if name not in definitions:
        definitions[name] = None
        hints = typing.get_type_hints(kind, NAMES, None, include_extras=True)
        required = [key for key, each in hints.items() if typing.get_origin(each) is typing_extensions.Required]
        properties = {key: schema(each) for key, each in hints.items()}
        definitions[name] = {
            "type": "object", "properties": properties, "required": required, "additionalProperties": False,
        }  # fmt: skip
    return {"$ref": f"#/$defs/{name}"}


if __name__ == "__main__":
    print(json.dumps({**schema(types.ManagedCluster), "$defs": definitions}))
