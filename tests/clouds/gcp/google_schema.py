"""Google's published descriptions of its interfaces: operations, and JSON schemas of bodies."""

from __future__ import annotations

import functools
import json
import re
from typing import Any

from tests.clusters.cloud import servers

Body = dict[str, Any]


@functools.cache
def described(name: str, version: str = "v1") -> tuple[list[tuple[str, str, Body]], Body]:
    """Method, pattern of the path and description of each operation; schemas of bodies."""
    document = json.loads(servers.google_documents().joinpath(f"{name}.{version}.json").read_text())
    operations = []

    def collect(resources: Body) -> None:
        for resource in resources.values():
            for method in resource.get("methods", {}).values():
                path = method.get("flatPath") or method["path"]
                pattern = re.sub(r"\\\{\\?\+?\w+\\\}", "[^/]+", re.escape(document["servicePath"] + path))
                operations.append((method["httpMethod"], "/" + pattern, method))
            collect(resource.get("resources", {}))

    collect(document["resources"])
    return operations, {key: convert(body) for key, body in document["schemas"].items()}


def convert(body: Body) -> Body:
    """Google's description of a value as a JSON schema; fields that it does not have are refused."""
    if "$ref" in body:
        return {"$ref": f"#/$defs/{body['$ref']}"}
    if body["type"] == "array":
        return {"type": "array", "items": convert(body["items"])}
    if body["type"] == "object":
        own = {name: convert(each) for name, each in body.get("properties", {}).items() if not each.get("readOnly")}
        free = body.get("additionalProperties")
        return {"type": "object", "properties": own, "additionalProperties": convert(free) if free else False}
    return {"type": body["type"], **({"enum": body["enum"]} if "enum" in body else {})} if body["type"] != "any" else {}
