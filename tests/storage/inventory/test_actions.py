"""Fetching, removing, promoting and verifying: the same in a folder and in a real object store."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path

import pytest

from longboat.core.errors import EngineError, NotFound, Refused
from longboat.launcher import trainer
from longboat.storage.checkpoint_mirror import Mirror
from longboat.storage.checkpoints import complete_steps, prune, remove_own
from longboat.storage.inventory.actions import get, promote, remove, verify
from longboat.storage.inventory.entries import CheckpointPlace
from longboat.storage.inventory.folder_place import FolderPlace
from longboat.storage.inventory.store_place import StorePlace
from longboat.storage.retention import Retention
from tests.storage.realstores import Running

RUN = "digits"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the steps 1, 2, 3, as a trainer writes them."""
    for name in ("LONGBOAT_NODE", "LONGBOAT_ATTEMPT", "LONGBOAT_RANK", "RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LONGBOAT_CHECKPOINT_DIR", str(tmp_path / "source"))
    for step, accuracy in ((1, 0.9), (2, 0.5), (3, 0.7)):
        with trainer.checkpoint(step, accuracy=accuracy) as folder:
            Path(folder, "shards").mkdir()
            Path(folder, "shards", "0").write_bytes(os.urandom(1000))
            Path(folder, "model").write_text(f"weights {step}")
    return tmp_path / "source"


@pytest.fixture(params=["folder", pytest.param("store", marks=pytest.mark.stores)])
def place(request: pytest.FixtureRequest, source: Path) -> CheckpointPlace:
    if request.param == "folder":
        return FolderPlace(source)
    server: Running = request.getfixturevalue("s3")
    url = f"s3://data/ckpt/{uuid.uuid4().hex}"
    mirror = Mirror(url, server.environment)
    for _, path in complete_steps(source):
        mirror.send(path)
    return StorePlace(url, server.environment)


def steps(place: CheckpointPlace) -> list[int]:
    return [entry.step for entry in place.entries() if entry.complete]


def test_one_that_is_named_twice_is_removed_once(place: CheckpointPlace) -> None:
    assert [entry.step for entry in remove(place, RUN, ["1", "1", "2"], is_final=True, force=False)] == [1, 2]
    assert steps(place) == [3]


def test_they_are_listed_with_size_and_metrics(place: CheckpointPlace) -> None:
    entries = place.entries()
    assert [(entry.step, entry.metrics, entry.files, entry.newest) for entry in entries] == [
        (1, {"accuracy": 0.9}, 2, False),
        (2, {"accuracy": 0.5}, 2, False),
        (3, {"accuracy": 0.7}, 2, True),
    ]
    assert entries[0].size == 1009 and entries[0].where.startswith(place.where)


def test_one_is_fetched_whole_under_a_name_that_is_free(place: CheckpointPlace, tmp_path: Path) -> None:
    (tmp_path / "into").mkdir()
    assert get(place, RUN, "2", tmp_path / "into") == tmp_path / "into" / "step-2"
    assert get(place, RUN, "", tmp_path / "new" / "best") == tmp_path / "new" / "best"
    assert (tmp_path / "new" / "best" / "model").read_text() == "weights 3"
    assert sorted(os.listdir(tmp_path / "into" / "step-2")) == [".complete", "model", "shards"]
    assert os.listdir(tmp_path / "new") == ["best"] and os.listdir(tmp_path / "into") == ["step-2"]
    with pytest.raises(Refused, match="exists already"):
        get(place, RUN, "2", tmp_path / "into")


def test_a_promoted_one_outlives_the_policy_and_needs_force(place: CheckpointPlace, source: Path) -> None:
    assert promote(place, RUN, "1").promoted
    if isinstance(place, StorePlace):
        place._mirror.prune(1)
    else:
        prune(source, 1)
    assert steps(place) == [1, 3]
    with pytest.raises(Refused, match="is promoted"):
        remove(place, RUN, ["1"], is_final=True, force=False)
    assert not promote(place, RUN, "promoted", undo=True).promoted
    remove(place, RUN, ["1"], is_final=True, force=False)
    assert steps(place) == [3]


def test_the_best_stays(place: CheckpointPlace, source: Path) -> None:
    rule = Retention(last=1, best=1, metric="accuracy")
    if isinstance(place, StorePlace):
        place._mirror.prune(rule)
    else:
        prune(source, rule)
    assert steps(place) == [1, 3]


def test_removal_checks_all_before_the_first_goes(place: CheckpointPlace) -> None:
    with pytest.raises(Refused, match="newest complete"):
        remove(place, RUN, ["1", "3"], is_final=False, force=False)
    with pytest.raises(NotFound, match="step 9"):
        remove(place, RUN, ["1", "9"], is_final=True, force=True)
    assert steps(place) == [1, 2, 3]
    assert [entry.step for entry in remove(place, RUN, ["2", "newest"], is_final=False, force=True)] == [2, 3]
    assert steps(place) == [1]


def test_verify_reads_all_and_names_what_differs(place: CheckpointPlace, source: Path, tmp_path: Path) -> None:
    checks = verify(place, RUN, "")
    assert [(check.step, check.compared, check.problems) for check in checks] == [
        (step, "hashes", ()) for step in (1, 2, 3)
    ]
    entry = place.entries()[1]
    if isinstance(place, StorePlace):
        key = f"{place._mirror.where.key}{place._copies[entry.where].key}/model"
        place._mirror._store.put(key, b"weights X")
    else:
        (source / "step-2" / "model").write_text("weights X")
    (check,) = verify(place, RUN, "2")
    assert check.problems == ("model has other content than was written",)
    with pytest.raises(EngineError, match="is damaged"):
        get(place, RUN, "2", tmp_path / "copy")
    assert not [name for name in os.listdir(tmp_path) if "copy" in name]


def test_a_purge_removes_the_marks_too(source: Path, place: CheckpointPlace) -> None:
    promote(place, RUN, "1")
    if isinstance(place, StorePlace):
        place._mirror.remove_all()
        assert not list(place._mirror._store.listed(place._mirror.where.key))
    else:
        assert remove_own(source) == [] and not source.exists()


def test_a_new_attempt_leaves_the_mark(place: CheckpointPlace, source: Path) -> None:
    promote(place, RUN, "1")
    if isinstance(place, StorePlace):
        place._mirror.begin_attempt(1, "uid")
    assert [entry.step for entry in place.entries() if entry.promoted] == [1]


def test_a_marker_says_what_was_written(source: Path) -> None:
    marker = json.loads((source / "step-3" / ".complete").read_text())
    assert marker["count"] == 2 and marker["bytes"] == 1009 and marker["metrics"] == {"accuracy": 0.7}
    assert sorted(marker["files"]) == ["model", "shards/0"] and marker["files"]["model"][0] == 9
