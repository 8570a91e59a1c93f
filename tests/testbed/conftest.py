"""What the testbed's own tests share: a state folder of the test's own. `cluster` and the like are testbed.fixtures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import cleanup, requirements


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder of this test's own; whatever the test leaves in it is taken away."""
    folder = tmp_path / "state"
    monkeypatch.setenv("LONGBOAT_TESTBED_STATE", str(folder))
    yield folder
    cleanup.clean(everything=True)


@pytest.fixture
def needs_cluster() -> None:
    skip_without("cluster")


@pytest.fixture
def needs_pods() -> None:
    skip_without("pods")


def skip_without(kind: str) -> None:
    lacks = requirements.missing(kind)
    if lacks:
        pytest.skip(lacks)
