"""Impersonation: requests of one user in the name of another, as `kubectl --as` makes them. Pure.

Kubernetes lets only those do it who have the right `impersonate`, and then judges by the rights of the other.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Mapping
from typing import Any

from longboat.kubeapi.errors import KubeconfigError

NAME = re.compile(r"[!-~]([ -~]{0,252}[!-~])?")
"""Of users and groups: what a header carries as it is."""


def checked_name(name: str) -> str:
    """Raises KubeconfigError."""
    if not NAME.fullmatch(name):
        raise KubeconfigError(
            f"{name[:60]!r} cannot be the name of a user or group",
            hint="printable ASCII, no space at either end, at most 254 characters",
        )
    return name


def with_user(headers: Mapping[str, str], entry: Mapping[str, Any]) -> Mapping[str, str]:
    """Headers with those of `as` and `as-groups` of a kubeconfig's user; one for each group, as servers want them."""
    if not entry.get("as"):
        return headers
    fields = http.client.HTTPMessage()
    for name, value in headers.items():
        fields[name] = value
    fields["Impersonate-User"] = checked_name(str(entry["as"]))
    for group in entry.get("as-groups") or ():
        fields["Impersonate-Group"] = checked_name(str(group))
    return fields  # type: ignore[return-value]  # http.client takes it: a mapping with repeated names
