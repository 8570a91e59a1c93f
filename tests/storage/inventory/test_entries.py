"""What a scan of a checkpoint folder shows, which checkpoint is meant, and what its marker is compared with."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longboat.core.errors import EngineError, NotFound, Refused, UsageError
from longboat.storage.checkpoints import begin_attempt
from longboat.storage.fences import MARKER_MAX, marker_fields, read_marker
from longboat.storage.inventory import folder_scan
from longboat.storage.inventory.entries import (
    CheckpointEntry,
    check_removable,
    choose,
    compared,
    entries_of,
    named_checkpoint,
)
from longboat.storage.inventory.folder_place import FolderPlace


def checkpoint(folder: Path, step: int, **marker: object) -> Path:
    path = folder / f"step-{step}"
    path.mkdir(parents=True)
    (path / "model").write_text("x" * step)
    (path / ".complete").write_text(json.dumps({"step": step, **marker}))
    return path


def listed(folder: Path) -> list[CheckpointEntry]:
    return entries_of(folder_scan.scan(str(folder)), str(folder))


def test_a_scan_shows_finished_and_unfinished_ones(tmp_path: Path) -> None:
    checkpoint(tmp_path, 100, attempt=0, time=5.0, metrics={"loss": 0.5, "note": "text"})
    checkpoint(tmp_path, 20)
    (tmp_path / ".step-300.a0.worker-0.ab.tmp").mkdir()
    (tmp_path / "step-50").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / ".promoted-step-20").touch()
    entries = listed(tmp_path)
    assert [(entry.step, entry.complete, entry.newest, entry.promoted) for entry in entries] == [
        (20, True, False, True),
        (50, False, False, False),
        (100, True, True, False),
        (300, False, False, False),
    ]
    assert (entries[2].size, entries[2].files, entries[2].time, entries[2].attempt) == (100, 1, 5.0, 0)
    assert entries[2].metrics == {"loss": 0.5} and entries[2].where == f"{tmp_path}/step-100"
    assert entries[1].note == "never finished"


def test_what_a_replaced_attempt_completes_does_not_count(tmp_path: Path) -> None:
    checkpoint(tmp_path, 1, attempt=0)
    begin_attempt(tmp_path, 1, "uid")
    checkpoint(tmp_path, 2, attempt=0)
    first, second = listed(tmp_path)
    assert first.complete and first.newest and not second.complete
    assert second.note == "of an attempt that was replaced"


def test_the_scan_is_a_program_of_its_own(tmp_path: Path) -> None:
    """Pods get its text, and have nothing else of Longboat."""
    path = checkpoint(tmp_path, 3)
    command = [sys.executable, "-I", "-S", "-c", Path(folder_scan.__file__).read_text()]
    said = subprocess.run([*command, "scan", str(tmp_path)], capture_output=True, text=True, check=True).stdout
    assert json.loads(said) == folder_scan.scan(str(tmp_path))
    said = subprocess.run([*command, "digest", str(path)], capture_output=True, text=True, check=True).stdout
    assert json.loads(said) == folder_scan.digest(str(path)) and json.loads(said)["model"][0] == 3


@pytest.mark.parametrize("answer", [{}, {"folders": 3, "marks": {}}, {"folders": [{}], "marks": {}}])
def test_an_answer_that_is_none_is_one_message(answer: dict[str, object]) -> None:
    with pytest.raises(EngineError, match="cannot be told"):
        entries_of(answer, "/checkpoints")


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.just(10**400) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(["step", "attempt", "time", "metrics", "files", "bytes", "count"])


@given(st.dictionaries(KEYS, JSON, max_size=6).map(json.dumps) | st.text(max_size=20))
def test_whatever_a_marker_says_it_is_listed_and_compared(text: str) -> None:
    """Others may have written it: it is data, and never a crash."""
    judged = json.dumps({"marker": read_marker(text.encode()).digest, "metrics": marker_fields(text.encode())})
    marks = {".metrics-step-1": judged, ".attempt-1": text}
    folder = {"name": "step-1", "size": 3, "files": 1, "time": 1.0, "marker": text}
    (entry,) = entries_of({"folders": [folder], "marks": marks}, "/checkpoints")
    assert entry.step == 1 and all(isinstance(value, float) for value in entry.metrics.values())
    compared(entry, text.encode(), {"a": [3, "beef"]})


def test_which_checkpoint_is_meant(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        checkpoint(tmp_path, step)
    entries = listed(tmp_path)
    assert [choose(entries, wanted, "digits").step for wanted in ("", "newest", "2", "step-1")] == [3, 3, 2, 1]
    with pytest.raises(NotFound, match="no complete checkpoint of step 7") as caught:
        choose(entries, "7", "digits")
    assert caught.value.hint == "it has 3, 2, 1"
    with pytest.raises(NotFound, match="is promoted"):
        choose(entries, "promoted", "digits")
    (tmp_path / ".promoted-step-1").touch()
    assert choose(listed(tmp_path), "promoted", "digits").step == 1
    with pytest.raises(UsageError, match="is no step"):
        choose(entries, "../3", "digits")
    with pytest.raises(NotFound, match="no complete checkpoint"):
        choose([], "", "digits")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("digits:200", ("digits", "200")),
        ("digits-2:step-7", ("digits-2", "step-7")),
        ("digits:promoted", ("digits", "promoted")),
        ("digits", None),
        ("./a:7", None),
        ("s3://bucket/7", None),
        ("C:checkpoints", None),
    ],
)
def test_a_run_with_a_step(text: str, named: tuple[str, str] | None) -> None:
    assert named_checkpoint(text) == named


def test_the_newest_of_a_running_run_and_promoted_ones_stay(tmp_path: Path) -> None:
    checkpoint(tmp_path, 1)
    (newest,) = listed(tmp_path)
    check_removable(newest, "digits", is_final=True)
    with pytest.raises(Refused, match="has not ended"):
        check_removable(newest, "digits", is_final=False)
    (tmp_path / ".promoted-step-1").touch()
    with pytest.raises(Refused, match="promoted"):
        check_removable(listed(tmp_path)[0], "digits", is_final=True)


HASHES = {"a": [2, "beef"], "b": [3, "feed"]}


@pytest.mark.parametrize(
    ("marker", "digests", "basis", "problems"),
    [
        ({"files": HASHES}, HASHES, "hashes", ()),
        ({"files": HASHES}, {"a": [2, "beef"]}, "hashes", ("b is missing",)),
        ({"files": HASHES}, {**HASHES, "c": [1, "0"]}, "hashes", ("c was not there when it was completed",)),
        ({"files": HASHES}, {**HASHES, "a": [2, "dead"]}, "hashes", ("a has other content than was written",)),
        ({"files": HASHES}, {**HASHES, "a": [1, "dead"]}, "hashes", ("a has 1 bytes, and 2 were written",)),
        ({"files": {"a": [2, None]}}, {"a": [2, "any"]}, "sizes", ()),
        ({"count": 2, "bytes": 5}, HASHES, "sizes", ()),
        ({"count": 2, "bytes": 6}, HASHES, "sizes", ("2 files of 5 bytes, and 2 of 6 were written",)),
        ({"step": 3}, HASHES, "nothing", ()),
        ({"files": {"a": 7}}, {"a": [2, "any"]}, "hashes", ()),
    ],
)
def test_what_was_read_is_compared_with_what_was_written(
    marker: dict[str, object], digests: dict[str, list[object]], basis: str, problems: tuple[str, ...]
) -> None:
    entry = CheckpointEntry(step=1, name="step-1", where="/x", size=5, files=2, complete=True)
    check = compared(entry, json.dumps(marker).encode(), digests)
    if marker.get("files") != {"a": 7}:
        assert check.compared == basis
    assert check.problems == problems


def test_a_marker_is_read_up_to_its_bound(tmp_path: Path) -> None:
    checkpoint(tmp_path, 1)
    (tmp_path / "step-1" / ".complete").write_bytes(b"x" * (MARKER_MAX + 5))
    place = FolderPlace(tmp_path)
    assert len(place.marker(place.entries()[0])) == MARKER_MAX
