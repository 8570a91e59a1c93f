"""The OpenAPI of a version of Kubernetes, asked what it makes of an object: that of a running cluster, or a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

Object = dict[str, Any]

UNFINISHED = re.compile(r"\balpha\b", re.I)
KINDS_OF_VALUE: dict[str, tuple[type, ...]] = {
    "array": (list, tuple),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}


class Schemas:
    """`read` gives the OpenAPI document of a group and version, or None where that is not served."""

    def __init__(self, read: Callable[[str], Object | None]) -> None:
        self._read = read
        self._documents: dict[str, Object | None] = {}

    def document(self, version: str) -> Object | None:
        if version not in self._documents:
            self._documents[version] = self._read(version)
        return self._documents[version]

    def troubles(self, body: Object) -> list[str]:
        """What this version would not take as it is: a kind or field that it does not know, a value of another kind,
        a field that is off unless somebody opens a gate."""
        document = self.document(body["apiVersion"])
        if document is None:
            return [f"{body['apiVersion']} is not served"]
        schemas = document["components"]["schemas"]
        group, _, number = body["apiVersion"].rpartition("/")
        wanted = {"group": group, "kind": body["kind"], "version": number}
        for schema in schemas.values():
            if wanted in schema.get("x-kubernetes-group-version-kind", []):
                return list(_troubles(body, schema, schemas, body["kind"]))
        return [f"{body['apiVersion']} has no {body['kind']}"]

    def serves(self, version: str, path: str) -> bool:
        """Whether there is such a path, with `{namespace}` and `{name}` in it."""
        document = self.document(version)
        return document is not None and path in document["paths"]


def _troubles(value: Any, schema: Object, schemas: Object, path: str) -> Iterator[str]:
    if UNFINISHED.search(schema.get("description", "")):
        yield f"{path} is alpha"
    for part in (schema, *schema.get("allOf", [])):
        if "$ref" in part:
            schema = schemas[part["$ref"].rsplit("/", 1)[1]]
    yield from _misfits(value, schema, path)
    if isinstance(value, dict):
        fields, rest = schema.get("properties"), schema.get("additionalProperties")
        for key, item in value.items() if fields is not None or rest is not None else ():
            if key in (fields or {}):
                yield from _troubles(item, fields[key], schemas, f"{path}.{key}")
            elif isinstance(rest, dict):
                yield from _troubles(item, rest, schemas, f"{path}.{key}")
            else:
                yield f"{path}.{key} is unknown"
    elif isinstance(value, (list, tuple)) and "items" in schema:
        for item in value:
            yield from _troubles(item, schema["items"], schemas, path)


def _misfits(value: Any, schema: Object, path: str) -> Iterator[str]:
    kinds = KINDS_OF_VALUE.get(schema.get("type", ""))
    if kinds is not None and not isinstance(value, kinds):
        yield f"{path} is no {schema['type']}"
