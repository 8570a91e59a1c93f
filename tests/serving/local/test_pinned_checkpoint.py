"""The checkpoint of a service while its training removes or replaces it: all of it is pinned, or nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from longboat.core.errors import NotFound
from longboat.core.jobs import Job, Role
from longboat.engines.local.records import LocalRecord
from longboat.engines.shared.home import Home
from longboat.serving.local.pinned_checkpoint import pin_checkpoint


def trained(root: Path) -> LocalRecord:
    """A run with a checkpoint of two levels."""
    inner = root / "checkpoints" / "step-1" / "shards"
    inner.mkdir(parents=True)
    (inner / "weights").write_text("w")
    (inner.parent / ".complete").write_text('{"step": 1}')
    job = Job(name="train", roles=(Role(name="worker", run=("true",)),), ends=("worker",))
    return LocalRecord(
        name="train", uid="u", job=job, base="/", created=0.0, user="me", checkpoint_dir=str(root / "checkpoints")
    )


def test_all_of_it_is_pinned_also_over_what_a_killed_update_left(home: Path, tmp_path: Path) -> None:
    record, target = trained(tmp_path), tmp_path / "versions" / "2"
    (target / "step-1").mkdir(parents=True)
    (target / "step-1" / "old").write_text("old")
    assert pin_checkpoint(Home(home), record, None, target, {}) == (1, target / "step-1")
    found = sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())
    assert found == ["step-1/.complete", "step-1/shards/weights"]


@pytest.mark.parametrize("is_replaced", [False, True])
def test_one_that_goes_meanwhile_is_not_pinned_by_half(
    is_replaced: bool, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, target = trained(tmp_path), tmp_path / "versions" / "1"
    source = tmp_path / "checkpoints" / "step-1"
    link = os.link

    def link_and_set_aside(*arguments: Any, **options: Any) -> None:
        link(*arguments, **options)
        if not (source.parent / ".removed").exists():
            source.rename(source.parent / ".removed")
            if is_replaced:
                trained(tmp_path)

    monkeypatch.setattr(os, "link", link_and_set_aside)
    with pytest.raises(NotFound, match="checkpoint 1 of train was removed or replaced"):
        pin_checkpoint(Home(home), record, None, target, {})
    assert list(target.iterdir()) == []
