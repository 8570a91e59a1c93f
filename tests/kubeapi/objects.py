"""A struct that lists and watches are decoded into, as callers make their own."""

from __future__ import annotations

import msgspec


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}


class ConfigMapStruct(msgspec.Struct, frozen=True):
    metadata: Metadata = Metadata()
    data: dict[str, str] = {}
