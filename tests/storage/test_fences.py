"""Several writers at one place: other roles, attempts that live on, processes that are killed.

What is complete is of one writer, and an older attempt never gets in the way of a newer one.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from longboat.core.errors import EngineError
from longboat.launcher import trainer
from longboat.storage import fences
from longboat.storage.checkpoint_mirror import Mirror
from longboat.storage.checkpoints import begin_attempt, complete_steps, forget_attempts, newest_complete, prune
from longboat.storage.fences import Fence, Fenced, counts, read_marker
from longboat.storage.transfers import Transfer
from tests.storage.realstores import Running

SOURCE = Path(__file__).parents[2] / "src"
QUICK = Transfer(timeout_s=10.0, attempts=3, backoff_s=0.01)
WRITES = """
import os, sys
os.getpid = lambda: 7  # as in pods, where every rank may have the same
sys.path.insert(0, os.environ["LAUNCHER"])
import trainer
count = 0
while True:
    count += 1
    tag = "%s %s %d" % (os.environ["LONGBOAT_NODE"], os.environ["LONGBOAT_ATTEMPT"], count)
    with trainer.checkpoint(count % 3) as folder:
        for part in range(4):
            with open(os.path.join(folder, "part-%d" % part), "w") as file:
                file.write(tag)
    print(count, flush=True)
"""
SENDS = """
import os, sys
from pathlib import Path
from longboat.storage.checkpoint_mirror import Mirror
folder, attempt = Path(sys.argv[2]), int(os.environ["LONGBOAT_ATTEMPT"])
mirror = Mirror(sys.argv[1], os.environ, attempt=attempt)
count = 0
while True:
    count += 1
    path = folder / "step-1"
    path.mkdir(parents=True, exist_ok=True)
    for part in range(4):
        (path / f"part-{part}").write_text(f"{attempt} {count}")
    (path / ".complete").write_text('{"attempt": %d, "count": %d}' % (attempt, count))
    mirror.send(path)
    mirror.prune(2)
    print(count, flush=True)
"""


def written(folder: Path, step: int, attempt: int, text: str = "weights") -> Path:
    """What a trainer of this attempt leaves behind."""
    path = folder / f"step-{step}"
    path.mkdir(parents=True)
    (path / "model.bin").write_text(text)
    (path / ".complete").write_text(json.dumps({"step": step, "attempt": attempt, "id": uuid.uuid4().hex}))
    return path


def save(folder: Path, step: int, attempt: int, monkeypatch: pytest.MonkeyPatch, text: str = "") -> None:
    monkeypatch.setenv("LONGBOAT_CHECKPOINT_DIR", str(folder))
    monkeypatch.setenv("LONGBOAT_ATTEMPT", str(attempt))
    monkeypatch.setenv("LONGBOAT_NODE", "worker-0")
    monkeypatch.setenv("LONGBOAT_LOCAL_RANK", "0")
    with trainer.checkpoint(step) as place:
        (Path(place) / "model.bin").write_text(text or f"attempt {attempt}")


def model(folder: Path, step: int) -> str:
    return (folder / f"step-{step}" / "model.bin").read_text()


def check_whole(folder: Path) -> int:
    """Every complete checkpoint is of one writer, and its marker says of which. How many there are."""
    found = complete_steps(folder)
    for _, path in found:
        try:
            marker = json.loads((path / ".complete").read_text())
            tags = {(path / f"part-{part}").read_text() for part in range(4)}
        except FileNotFoundError:
            continue  # replaced this moment
        assert len(tags) == 1 or not (path / ".complete").exists() or _is_replaced(path, marker), (path, tags)
    return len(found)


def _is_replaced(path: Path, marker: Mapping[str, Any]) -> bool:
    """Whoever reads file by file may see two checkpoints one after the other."""
    return bool(json.loads((path / ".complete").read_text())["id"] != marker["id"])


def test_two_roles_and_two_attempts_race_and_are_killed(tmp_path: Path) -> None:
    rng = random.Random(5)
    environment = {
        **os.environ,
        "LAUNCHER": str(SOURCE / "longboat" / "launcher"),
        "LONGBOAT_CHECKPOINT_DIR": str(tmp_path),
        "LONGBOAT_LOCAL_RANK": "0",
    }
    seen = 0
    for round_ in range(6):
        writers = [("chief-0", round_), ("worker-0", round_), ("chief-0", round_ + 1)]
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", WRITES],
                env={**environment, "LONGBOAT_NODE": node, "LONGBOAT_ATTEMPT": str(attempt)},
                stdout=subprocess.PIPE,
            )
            for node, attempt in writers
        ]
        try:
            for process in processes:
                assert process.stdout is not None
                process.stdout.readline()
            until = time.monotonic() + rng.uniform(0.05, 0.4)
            while time.monotonic() < until:
                check_whole(tmp_path)
        finally:
            for process in rng.sample(processes, len(processes)):
                process.kill()
                process.communicate()
        for _, path in complete_steps(tmp_path):
            tags = {(path / f"part-{part}").read_text() for part in range(4)}
            marker = json.loads((path / ".complete").read_text())
            assert len(tags) == 1 and tags.pop().startswith(f"{marker['node']} {marker['attempt']} ")
            seen += 1
    assert seen > 6


def test_an_older_attempt_neither_replaces_nor_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 5, 0, monkeypatch)
    save(tmp_path, 6, 0, monkeypatch)
    begin_attempt(tmp_path, 1, "uid")
    assert newest_complete(tmp_path) == tmp_path / "step-6"
    save(tmp_path, 7, 0, monkeypatch)  # from a machine that was cut off
    assert not (tmp_path / "step-7").exists()
    save(tmp_path, 6, 1, monkeypatch)
    save(tmp_path, 6, 0, monkeypatch)
    assert model(tmp_path, 6) == "attempt 1"
    written(tmp_path, 9, 0)  # it had looked for the fence before, and slept
    assert [step for step, _ in complete_steps(tmp_path)] == [5, 6]
    begin_attempt(tmp_path, 2, "uid")
    assert [step for step, _ in complete_steps(tmp_path)] == [5, 6]
    assert sorted(name for name in os.listdir(tmp_path) if name.startswith(".")) == [".attempt-2"]
    with pytest.raises(Fenced, match="attempt 3 of the run has started"):
        begin_attempt(tmp_path, 1, "uid")
    save(tmp_path, 9, 2, monkeypatch)
    assert newest_complete(tmp_path) == tmp_path / "step-9" and model(tmp_path, 9) == "attempt 2"


@pytest.mark.parametrize("is_there", [False, True])
def test_asleep_between_the_look_and_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """The newer attempt starts, and saves the same step, after the older one has found no fence."""
    if is_there:
        save(tmp_path, 4, 0, monkeypatch, "before")
    plain, calls = trainer._check_fence, []

    def look(parent: str, number: int = 0) -> None:
        plain(parent, number)
        calls.append(parent)
        if len(calls) == 2:  # the first look is at the beginning of the block
            monkeypatch.setattr(trainer, "_check_fence", plain)
            begin_attempt(tmp_path, 1, "uid")
            save(tmp_path, 4, 1, monkeypatch)
            monkeypatch.setenv("LONGBOAT_ATTEMPT", "0")

    monkeypatch.setattr(trainer, "_check_fence", look)
    save(tmp_path, 4, 0, monkeypatch)
    assert model(tmp_path, 4) == "attempt 1" and newest_complete(tmp_path) == tmp_path / "step-4"
    assert sorted(os.listdir(tmp_path)) == [".attempt-1", "step-4"]


def test_old_markers_and_those_made_by_hand_count(tmp_path: Path) -> None:
    for step, text in ((1, ""), (2, "{}"), (3, '{"attempt": true}'), (4, "[" * 5000), (5, "\x00")):
        written(tmp_path, step, 0)
        (tmp_path / f"step-{step}" / ".complete").write_text(text)
    begin_attempt(tmp_path, 3, "uid")
    written(tmp_path, 6, 0)
    (tmp_path / "step-6" / ".complete").write_text("")
    assert [step for step, _ in complete_steps(tmp_path)] == [1, 2, 3, 4, 5, 6]


def test_a_damaged_fence_still_stands(tmp_path: Path) -> None:
    written(tmp_path, 1, 0)
    (tmp_path / ".attempt-2").write_bytes(b"\xff{")
    assert complete_steps(tmp_path) == []
    written(tmp_path, 2, 2)
    assert newest_complete(tmp_path) == tmp_path / "step-2"


def test_pruning_by_a_fenced_attempt_removes_nothing(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        written(tmp_path, step, 0)
    begin_attempt(tmp_path, 1, "uid")
    with pytest.raises(Fenced):
        prune(tmp_path, 1, attempt=0)
    assert len(complete_steps(tmp_path)) == 3
    assert prune(tmp_path, 1, attempt=1) == [tmp_path / "step-1", tmp_path / "step-2"]


def test_pruning_never_takes_what_a_newer_attempt_writes(tmp_path: Path) -> None:
    written(tmp_path, 9, 1)
    old = (".step-3.a0.worker-0.00ff.tmp", ".step-3.77.tmp", "step-4.tmp-1")
    own, newer = (f".step-3.a{attempt}.worker-0.00ff.tmp" for attempt in (1, 2))
    for name in (*old, own, newer):
        (tmp_path / name).mkdir()
    prune(tmp_path, 3, attempt=1)
    assert sorted(os.listdir(tmp_path)) == [own, newer, "step-9"]
    prune(tmp_path, 3)
    assert os.listdir(tmp_path) == ["step-9"]


def test_pruning_clears_away_what_does_not_count(tmp_path: Path) -> None:
    written(tmp_path, 1, 0)
    begin_attempt(tmp_path, 1, "uid")
    written(tmp_path, 100, 0)
    written(tmp_path, 2, 1)
    assert prune(tmp_path, 3, attempt=1) == [tmp_path / "step-100"]
    assert [step for step, _ in complete_steps(tmp_path)] == [1, 2]


def test_the_first_attempt_leaves_no_fence_and_an_empty_folder_forgets_its_own(tmp_path: Path) -> None:
    begin_attempt(tmp_path, 0, "uid")
    assert os.listdir(tmp_path) == []
    begin_attempt(tmp_path, 1, "uid")
    forget_attempts(tmp_path)
    assert os.listdir(tmp_path) == []
    begin_attempt(tmp_path / "none", 1, "uid")
    written(tmp_path, 1, 0)
    begin_attempt(tmp_path, 1, "uid")
    forget_attempts(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".attempt-1", "step-1"]


def test_a_new_run_in_the_folder_of_a_removed_one_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`longboat rm` leaves checkpoints, and the same name may be given again: fences were the removed run's."""
    monkeypatch.setenv("LONGBOAT_RUN_UID", "old")
    save(tmp_path, 1, 0, monkeypatch)
    begin_attempt(tmp_path, 1, "old")
    written(tmp_path, 3, 0, "of an attempt that was cut off")
    save(tmp_path, 2, 1, monkeypatch, "old")
    assert [step for step, _ in complete_steps(tmp_path)] == [1, 2]
    monkeypatch.setenv("LONGBOAT_RUN_UID", "new")
    begin_attempt(tmp_path, 0, "new")
    assert [step for step, _ in complete_steps(tmp_path)] == [1, 2], "what was fenced off does not count again"
    save(tmp_path, 2, 0, monkeypatch, "new")
    save(tmp_path, 4, 0, monkeypatch)
    assert (newest_complete(tmp_path), model(tmp_path, 2)) == (tmp_path / "step-4", "new")
    begin_attempt(tmp_path, 1, "new")
    assert newest_complete(tmp_path) == tmp_path / "step-4"
    with pytest.raises(Fenced):
        begin_attempt(tmp_path, 2, "new") or begin_attempt(tmp_path, 1, "new")


def test_a_damaged_fence_of_a_removed_run_removes_nothing(tmp_path: Path) -> None:
    written(tmp_path, 1, 0)
    (tmp_path / ".attempt-1").write_text("")
    begin_attempt(tmp_path, 0, "new")
    assert newest_complete(tmp_path) == tmp_path / "step-1"


def test_rules() -> None:
    fence = Fence(2, frozenset({"step-1:aa"}))
    assert counts(None, "step-1:xx", 0) and counts(fence, "step-9:zz", None)
    assert counts(fence, "step-1:aa", 0) and not counts(fence, "step-1:bb", 1) and counts(fence, "step-1:bb", 2)
    assert fences.decode(2, fences.encode(fence, "uid")) == fence
    assert read_marker(b'{"attempt": 3}').attempt == 3 and read_marker(b'{"attempt": -1}').attempt is None
    assert read_marker(b"a").digest != read_marker(b"b").digest


# in a store


@pytest.fixture
def url() -> str:
    return f"s3://data/ckpt/{uuid.uuid4().hex}"


def test_senders_of_two_attempts_race_and_are_killed(s3: Running, url: str, tmp_path: Path) -> None:
    rng = random.Random(9)
    fetched = 0
    for round_ in range(4):
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", SENDS, url, str(tmp_path / f"{round_}-{attempt}")],
                env={**os.environ, **s3.environment, "PYTHONPATH": str(SOURCE), "LONGBOAT_ATTEMPT": str(attempt)},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            for attempt in (round_, round_ + 1)
        ]
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        time.sleep(rng.uniform(0.05, 0.5))
        for process in processes:
            process.kill()
            process.communicate()
        found = Mirror(url, s3.environment, QUICK).fetch("step-1", tmp_path / f"copy-{round_}")
        if found is not None:
            tags = {(found / f"part-{part}").read_text() for part in range(4)}
            marker = json.loads((found / ".complete").read_text())
            assert tags == {f"{marker['attempt']} {marker['count']}"}
            fetched += 1
    assert fetched >= 3


def test_a_fenced_sender_completes_removes_and_counts_nothing(s3: Running, url: str, tmp_path: Path) -> None:
    old, new = (Mirror(url, s3.environment, QUICK, attempt=attempt) for attempt in (0, 1))
    old.send(written(tmp_path / "old", 5, 0))
    new.begin_attempt(1, "uid")
    assert new.complete() == [(5, "step-5")]
    with pytest.raises(Fenced):
        old.send(written(tmp_path / "old", 6, 0))
    with pytest.raises(Fenced):
        old.prune(1)
    assert new.complete() == [(5, "step-5")]
    new.send(written(tmp_path / "new", 6, 1, "new"))
    # One that had looked for the fence before it came, and wrote its marker after it.
    zombie = Mirror(url, s3.environment, QUICK)
    zombie._remove_earlier = lambda name, sent: None  # type: ignore[method-assign]
    zombie.send(written(tmp_path / "zombie", 7, 0))
    zombie.send(written(tmp_path / "zombie", 6, 0, "zombie"))
    assert new.complete() == [(5, "step-5"), (6, "step-6")]
    found = new.fetch_newest(tmp_path / "copy")
    assert found == tmp_path / "copy" / "step-6" and (found / "model.bin").read_text() == "new"
    assert sorted(new.prune(1)) == ["step-5", "step-6", "step-7"]
    assert new.complete() == [(6, "step-6")]
    with pytest.raises(Fenced):
        old._check_fence()
    assert new.remove_all() == 1 and list(new._store.listed(new.where.key)) == []


def test_a_sender_asleep_before_its_marker_takes_nothing_away_that_was_accepted(
    s3: Running, url: str, tmp_path: Path
) -> None:
    old, new = (Mirror(url, s3.environment, QUICK, attempt=attempt) for attempt in (0, 1))
    old.send(written(tmp_path / "old", 5, 0, "accepted"))
    old._check_fence = lambda: new.begin_attempt(1, "uid")  # type: ignore[method-assign]
    with pytest.raises(Fenced):
        old.send(written(tmp_path / "again", 5, 0, "too late"))
    assert new.complete() == [(5, "step-5")]
    found = new.fetch_newest(tmp_path / "copy")
    assert found is not None and (found / "model.bin").read_text() == "accepted"


def test_checkpoints_that_older_versions_sent_are_read_replaced_and_removed(
    s3: Running, url: str, tmp_path: Path
) -> None:
    mirror = Mirror(url, s3.environment, QUICK, attempt=1)
    for step in (1, 2):
        for name, data in (("model.bin", b"old"), ("shards/0", b"s"), (".complete", b"")):
            mirror._store.put(f"{mirror.where.key}step-{step}/{name}", data)
    mirror.begin_attempt(1, "uid")
    assert mirror.complete() == [(1, "step-1"), (2, "step-2")]
    found = mirror.fetch_newest(tmp_path / "copy")
    assert found is not None and (found / "shards" / "0").read_text() == "s"
    mirror.send(written(tmp_path, 2, 1, "new"))
    again = mirror.fetch("step-2", tmp_path / "again")
    assert again is not None and (again / "model.bin").read_text() == "new" and not (again / "shards").exists()
    assert mirror.prune(1) == ["step-1"]
    with pytest.raises(EngineError):
        mirror._store.ask("GET", f"{mirror.where.key}step-2/model.bin")
