"""Checkpoints of real stores as an evaluator on another machine follows them."""

from __future__ import annotations

import hashlib
import json
import uuid
from pathlib import Path

import pytest

from longboat.storage.checkpoint_mirror import Mirror
from longboat.storage.checkpoints import complete_steps
from longboat.storage.evaluations import AHEAD, drop_before, fetch_next, send_evaluations
from longboat.storage.inventory.store_place import StorePlace
from longboat.storage.retention import Retention
from tests.storage.realstores import Running


@pytest.fixture(params=["s3", "azure"])
def server(request: pytest.FixtureRequest) -> tuple[Running, str]:
    scheme = {"s3": "s3", "azure": "az"}[request.param]
    running: Running = request.getfixturevalue(request.param)
    return running, f"{scheme}://data/{uuid.uuid4().hex}"


def save(folder: Path, step: int, attempt: int = 0) -> Path:
    path = folder / f"step-{step}"
    path.mkdir(parents=True)
    (path / "model").write_text(str(step))
    (path / ".complete").write_text(json.dumps({"step": step, "attempt": attempt}))
    return path


def judge(folder: Path, step: int, accuracy: float) -> None:
    marker = hashlib.sha256((folder / f"step-{step}" / ".complete").read_bytes()).hexdigest()[:16]
    evaluation = {"marker": marker, "metrics": {"accuracy": accuracy}}
    (folder / f".metrics-step-{step}").write_text(json.dumps(evaluation))


def here(folder: Path) -> list[int]:
    return [step for step, _ in complete_steps(folder)]


@pytest.mark.stores
def test_they_come_in_order_few_at_once_and_what_is_told_goes_back(server: tuple[Running, str], tmp_path: Path) -> None:
    running, url = server
    mirror, writes, reads = Mirror(url, running.environment), tmp_path / "writes", tmp_path / "reads"
    reads.mkdir()
    assert fetch_next(mirror, reads, after=-1, newest_only=False) == (-1, True, False)
    for step in (1, 2, 3, 10):
        mirror.send(save(writes, step))
    for count in range(AHEAD):
        assert fetch_next(mirror, reads, after=-1, newest_only=False) == (10, False, True), count
    assert fetch_next(mirror, reads, after=-1, newest_only=False) == (10, False, False) and here(reads) == [1, 2]

    sent: dict[str, bytes] = {}
    for step in (1, 2):
        judge(reads, step, 0.9 / step)
    send_evaluations(mirror, reads, sent)
    drop_before(reads, 2, None)
    assert here(reads) == [2] and set(sent) == {".metrics-step-1", ".metrics-step-2"}
    assert [entry.metrics for entry in StorePlace(url, running.environment).entries()][:2] == [
        {"accuracy": 0.9},
        {"accuracy": 0.45},
    ]
    # An evaluator that is started anew, on another machine, begins after those.
    anew = tmp_path / "anew"
    anew.mkdir()
    assert fetch_next(mirror, anew, after=-1, newest_only=False).is_new and here(anew) == [3]
    assert fetch_next(mirror, anew, after=3, newest_only=True).is_new and here(anew) == [3, 10]
    assert fetch_next(mirror, anew, after=10, newest_only=True) == (10, True, False)

    # `keep` knows the best by its word; what was told of one goes with it.
    mirror.prune(Retention(last=1, best=1, metric="accuracy"))
    assert [name for _, name in mirror.complete()] == ["step-1", "step-10"]
    assert [name for name in mirror.inventory()[0].marks if "metrics" in name] == [".metrics-step-1"]
    mirror.remove(1)
    assert mirror.inventory()[0].marks == ()


@pytest.mark.stores
def test_one_that_a_retry_wrote_again_is_fetched_again(s3: Running, tmp_path: Path) -> None:
    url = f"s3://data/{uuid.uuid4().hex}"
    mirror, reads = Mirror(url, s3.environment), tmp_path / "reads"
    mirror.send(save(tmp_path / "first", 1))
    assert fetch_next(mirror, reads, after=-1, newest_only=False).is_new
    judge(reads, 1, 0.5)
    send_evaluations(mirror, reads, {})
    again = Mirror(url, s3.environment, attempt=1)
    again.send(save(tmp_path / "second", 1, attempt=1))
    anew = tmp_path / "anew"
    anew.mkdir()
    assert fetch_next(mirror, anew, after=-1, newest_only=False).is_new and here(anew) == [1]
    assert StorePlace(url, s3.environment).entries()[-1].metrics == {}
