"""The engines under test, and the little the suite must know about each beyond its interface.

Adding an engine: one class with the members of `Place`, one entry in PLACES. The Kubernetes engine is in `clusters`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest

from longboat.engines.engine import Engine
from testbed.podman import Podman
from tests.conformance.clusters import Flavour, open_cluster
from tests.launcher.nodes import survivors


class Place(Protocol):
    """What the tests ask of an engine's surroundings."""

    engine: Engine
    environment: Mapping[str, str]
    """The submitter's environment."""

    unsupported: Sequence[tuple[dict[str, Any], list[str], list[str]]]
    """Fields that this engine cannot honour; what the refusal's reason and hint must name."""

    fields: Mapping[str, Any]
    """What every job says here, unless a test says otherwise."""

    is_this_machine: bool
    """Whether folders that a run is told of are folders of this machine."""

    keeps_gpus_for_a_retry: bool
    """Whether a run that is tried again is served before all others."""

    has_own_gate: bool
    """Whether Longboat itself lets runs in: it then knows `after` and priorities. Else Kueue does."""

    passes_stdin: bool
    """Whether the only rank of a run reads what its submitter reads."""

    def again(self) -> Engine:
        """The same engine as a new command would open it."""

    def url_of(self, path: Path) -> str:
        """An address from which nodes can import this file."""

    def shown_gpus(self, *ids: str) -> list[str]:
        """What a rank that holds these GPUs finds in CUDA_VISIBLE_DEVICES; `-` where it is not set."""

    def with_gpus(self, *ids: str) -> Mapping[str, str]:
        """An environment for submitters on a place that has exactly these GPUs."""

    def processes(self, uid: str) -> list[int]:
        """Live processes of the run with this uid."""

    def is_process(self, pid: int, *, uid: str) -> bool:
        """Whether a pid that a rank printed still runs."""

    def traces(self, run: str, uid: str) -> list[str]:
        """What is left of a deleted run, its checkpoints excepted."""

    def has_checkpoints(self, checkpoint_dir: str) -> bool:
        """Whether the checkpoint folder of a deleted run is still there."""

    def holding(self, needle: bytes) -> list[str]:
        """Stored things that contain these bytes."""


class LocalPlace:
    """The embedded engine in a home of its own."""

    fields: Mapping[str, Any] = {}
    is_this_machine = True
    keeps_gpus_for_a_retry = True
    has_own_gate = True
    passes_stdin = True
    unsupported = (
        ({"volumes": {"/data": {"claim": "datasets"}}}, ["volumes./data", "claim"], ["local.claims.datasets"]),
        ({"volumes": {"/data": {"nfs": "server:/export"}}}, ["volumes./data", "nfs"], ["local.mounts"]),
        ({"volumes": {"/data": {"path": "/elsewhere"}}}, ["volumes./data"], ["mkdir"]),
        ({"data": [{"url": "s3://bucket/set/", "to": "data", "sha256": "0" * 64}]}, ["s3://bucket/set/"], ["object"]),
    )

    def __init__(self, root: Path, variables: Mapping[str, str] | None = None) -> None:
        from longboat.engines.local.engine import LocalEngine

        self._home = root / "home"
        kept = {name: value for name, value in os.environ.items() if name not in ("LONGBOAT_GPUS", "LONGBOAT_SLOTS")}
        self.environment: Mapping[str, str] = {
            **kept,
            **(variables or {}),
            "LONGBOAT_HOME": str(self._home),
            "LONGBOAT_GPUS": "",
        }
        self.engine: Engine = LocalEngine(self._home, environment=self.environment)

    def again(self) -> Engine:
        from longboat.engines.local.engine import LocalEngine

        return LocalEngine(self._home, environment=self.environment)

    def url_of(self, path: Path) -> str:
        return path.as_uri()

    def shown_gpus(self, *ids: str) -> list[str]:
        return sorted(ids)

    def with_gpus(self, *ids: str) -> Mapping[str, str]:
        return {**self.environment, "LONGBOAT_GPUS": ",".join(ids)}

    def processes(self, uid: str) -> list[int]:
        return survivors(uid)

    def is_process(self, pid: int, *, uid: str) -> bool:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        return state not in ("Z", "X")

    def traces(self, run: str, uid: str) -> list[str]:
        shared = (
            "bundles",
            "ports",
            "addresses",
            "gpus",
            "environments",
            "data",
            "shims",
        )  # caches and locks of all runs
        left = [path.relative_to(self._home) for path in self._home.rglob("*")]
        named = [path for path in left if path.parts[0] not in (*shared, "checkpoints")]
        return [str(path) for path in named if str(path) not in ("runs", "queue", "queue/.lock", "queue/.next")]

    def has_checkpoints(self, checkpoint_dir: str) -> bool:
        return Path(checkpoint_dir).is_dir()

    def holding(self, needle: bytes) -> list[str]:
        files = (path for path in self._home.rglob("*") if path.is_file() and not path.is_symlink())
        return [str(path.relative_to(self._home)) for path in files if needle in path.read_bytes()]


class PodmanPlace(LocalPlace):
    """The embedded engine, with every node in a container."""

    passes_stdin = False

    def __init__(self, root: Path, podman: Podman) -> None:
        super().__init__(root, podman.environment)
        self.podman = podman
        self.fields = {"image": podman.image}

    def traces(self, run: str, uid: str) -> list[str]:
        return [*super().traces(run, uid), *(name for name in self.podman.containers() if uid in name)]


@contextmanager
def open_local(root: Path, place: LocalPlace | None = None) -> Iterator[LocalPlace]:
    place = place or LocalPlace(root)
    try:
        yield place
    finally:
        for status in place.engine.list():
            if not status.is_final:
                place.engine.stop(status.name, grace_s=0)
        for status in place.engine.list():
            place.engine.wait(status.name, timeout_s=60)


def open_here(_request: pytest.FixtureRequest, root: Path) -> AbstractContextManager[Place]:
    return open_local(root)


def open_podman(request: pytest.FixtureRequest, root: Path) -> AbstractContextManager[Place]:
    return open_local(root, PodmanPlace(root, request.getfixturevalue("podman")))


@contextmanager
def open_flavour(flavour: Flavour, request: pytest.FixtureRequest, root: Path) -> Iterator[Place]:
    cluster, namespace = request.getfixturevalue("cluster"), request.getfixturevalue("namespace")
    with open_cluster(root, cluster, namespace, flavour) as place:
        yield place


PLACES = {
    "local": (open_here, ()),
    "podman": (open_podman, (pytest.mark.podman,)),
    "kubernetes": (partial(open_flavour, "kubernetes"), (pytest.mark.pods,)),
    "older": (partial(open_flavour, "kubernetes"), (pytest.mark.pods("older"), pytest.mark.soak)),
    "jobset": (partial(open_flavour, "jobset"), (pytest.mark.pods("controllers"), pytest.mark.soak)),
    "kueue": (partial(open_flavour, "kueue"), (pytest.mark.pods("controllers"), pytest.mark.soak)),
}
"""How each is opened, and the markers of its tests."""
