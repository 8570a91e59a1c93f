"""Names for a new run that no other run of the namespace has: NAME, NAME-2, NAME-3, ..."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.slim_objects import SlimRecord
from longboat.engines.shared.home import numbered_names
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import Forbidden
from longboat.kubeapi.kinds import CONFIG_MAP

NAMES_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
FEW_NAMES = 3
"""Names that are tried before all are looked at."""


def taken_names(client: Client, base: str) -> frozenset[str]:
    """Names that others have, if any has this one. A hint: whoever creates the record has the name."""
    try:
        # Also of a run that has expired, whose record is called otherwise.
        is_taken = client.list(CONFIG_MAP, labels=f"{names.RUN}={base}", into=SlimRecord).items
        return _all_names(client) if is_taken else frozenset()
    except Forbidden:
        return frozenset()  # Creating the record will tell.


def free_names(client: Client, base: str, taken: frozenset[str]) -> Iterator[str]:
    """NAME, NAME-2, NAME-3, ... without those that others had when we looked; after a few tries we look again."""
    tried = 0
    for name in numbered_names(base):
        if name not in taken and tried == FEW_NAMES:
            taken, tried = _all_names(client), 0
        if name not in taken:
            tried += 1
            yield name


def _all_names(client: Client) -> frozenset[str]:
    """Names of all ConfigMaps, without what is in them."""
    answer = client.request("GET", client.path(CONFIG_MAP), accept=NAMES_ONLY)
    listed = (str(each["metadata"]["name"]) for each in msgspec.json.decode(answer).get("items") or ())
    return frozenset(name.removesuffix(names.EXPIRED_SUFFIX) for name in listed)
