"""What a replica says that there is, and what the Deployment becomes of it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from longboat.core.errors import EngineError
from longboat.core.jobs import Serve
from longboat.serving.kubernetes.following import asked_pod, entries_of
from longboat.serving.kubernetes.manifests import MOST_FAILED, ServingRecord

RECORD = ServingRecord(run="train", step=7, version=1, command=("app",), serve=Serve(follow="newest"))


def pod(name: str, *, ready: bool = False, running: bool = True, leaves: bool = False) -> dict[str, Any]:
    status = {
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "containerStatuses": [{"name": "main", "state": {"running": {}} if running else {"waiting": {}}}],
    }
    return {"metadata": {"name": name, **({"deletionTimestamp": "now"} if leaves else {})}, "status": status}


def test_who_is_asked() -> None:
    assert asked_pod([]) is None
    assert (
        asked_pod([{"metadata": {"name": "new"}}, pod("w", running=False), pod("l", ready=True, leaves=True)]) is None
    )
    assert asked_pod([pod("b"), pod("c", ready=True), pod("a")]) == "c"
    assert asked_pod([pod("b"), pod("a")]) == "a", "none is ready: the first version may be the bad one"


def test_what_a_replica_says() -> None:
    answer = {"checkpoints": [[1, {"loss": 0.5}], [2, {}], [-3, {}], [10**18, {}]], "promoted": [1, 99]}
    entries = entries_of(json.dumps(answer).encode(), "pod")
    assert [(each.step, each.promoted, dict(each.metrics)) for each in entries] == [
        (1, True, {"loss": 0.5}),
        (2, False, {}),
    ]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b"{}",
        b'{"checkpoints": [["1", {}]]}',
        b'{"checkpoints": [[1, {"a": "x"}]]}',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_what_is_no_answer(answer: bytes) -> None:
    with pytest.raises(EngineError, match="pod: the answer is not understood"):
        entries_of(answer, "pod")


def test_what_somebody_made_keeps_its_secrets() -> None:
    followed = msgspec.structs.replace(RECORD, version=5, base=RECORD.made)
    assert (RECORD.made, followed.made) == (1, 1)
    failed = followed.with_failed()
    assert failed == (7,) and followed.without_failed().failed == (7,)
    many = msgspec.structs.replace(followed, failed=tuple(range(MOST_FAILED)), step=None)
    assert many.with_failed() == many.failed
    assert len(msgspec.structs.replace(many, step=3).with_failed()) == MOST_FAILED
