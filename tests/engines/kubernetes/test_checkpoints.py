"""A checkpoint's marker as a pod hands it over: it may be of any length."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

from longboat.engines.kubernetes.checkpoints import PodPlace
from longboat.storage.fences import MARKER_MAX
from longboat.storage.inventory.entries import CheckpointEntry


def endless(_: str) -> Iterator[bytes]:
    while True:
        yield b"x" * 1000


def test_a_marker_without_end_is_read_up_to_its_bound() -> None:
    entry = CheckpointEntry(step=1, name="step-1", where="/c/step-1", size=1, files=1, complete=True)
    assert len(PodPlace(SimpleNamespace(cat=endless), "/c").marker(entry)) == MARKER_MAX  # type: ignore[arg-type]
