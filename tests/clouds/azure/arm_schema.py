"""Prints what Azure's own client libraries know of its interfaces: operations, and JSON schemas of bodies (wire names).

`arm_schema.py containerservice ManagedCluster`. Run by the Python of the environment that has the libraries. Unknown
fields are not allowed.
"""

from __future__ import annotations

import datetime as dt
import enum
import importlib
import json
import pathlib
import re
import sys
import typing

import typing_extensions

PACKAGE = f"azure.mgmt.{sys.argv[1]}"
models, types = importlib.import_module(f"{PACKAGE}.models"), importlib.import_module(f"{PACKAGE}.types")
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


def operations() -> list[tuple[str, str, str]]:
    """Method, path and version of each, as the functions that build requests have them."""
    folder = pathlib.Path(str(importlib.import_module(PACKAGE).__file__)).parent
    text = (folder / "operations" / "_operations.py").read_text()
    told = []
    for function in re.split(r"\ndef build_", text)[1:]:
        path = re.search(r'_url = \(?\s*"([^"]+)"', function)
        version = re.search(r'"api-version", "([^"]+)"', function)
        method = re.search(r'method="([A-Z]+)"', function)
        if path and version and method:
            told.append((method[1], path[1], version[1]))
    return told


if __name__ == "__main__":
    bodies = {name: schema(getattr(types, name)) for name in sys.argv[2:]}
    print(json.dumps({"bodies": bodies, "$defs": definitions, "operations": operations()}))
