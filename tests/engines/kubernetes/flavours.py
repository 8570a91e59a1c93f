"""What a run is made of: plain Jobs, a JobSet, or a JobSet in a queue of Kueue."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from testbed import api, kueue

CONTROLLERS = (pytest.mark.pods("controllers"), pytest.mark.soak)
FLAVOURS = ("job", pytest.param("jobset", marks=CONTROLLERS), pytest.param("kueue", marks=CONTROLLERS))
"""For `pytest.mark.parametrize("flavour", FLAVOURS)`: the shared cluster without and with JobSet and Kueue."""


@contextlib.contextmanager
def queue_of(flavour: str, with_api: api.Api, namespace: str) -> Iterator[str | None]:
    """The queue of the namespace's runs, with room for everything; None for flavours without."""
    if flavour != "kueue":
        yield None
        return
    with_api.apply(kueue.queue(namespace, namespace, {"cpu": "64", "memory": "1Pi", "ephemeral-storage": "1Pi"}))
    try:
        yield namespace
    finally:
        with_api.close()
        for kind in ("ClusterQueue", "ResourceFlavor"):
            with_api.delete(api.path_of(kind, kueue.VERSION, name=namespace))
