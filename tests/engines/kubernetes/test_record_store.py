"""The one way in for records: what others wrote is about its own object, bounded, or refused by name."""

from __future__ import annotations

import json
import threading
from typing import Any

import msgspec
import pytest

from longboat.core.jobs import Gpus, Resources
from longboat.engines.kubernetes.manifests import objects
from longboat.engines.kubernetes.observe.observe import snapshot_of
from longboat.engines.kubernetes.observe.snapshot import WorkloadView
from longboat.engines.kubernetes.reconcile.reconciler import shortest
from longboat.engines.kubernetes.record_store import STOP, BadRecord, hash_of_record, read_record, read_stop
from longboat.engines.kubernetes.records import State
from longboat.engines.shared.stop_request import StopRequest
from tests.engines.kubernetes.manifest_samples import job, record, role


def body(**changes: Any) -> dict[str, Any]:
    made = objects.record_object(record(), State())
    made["metadata"] |= {"uid": "u-1", "resourceVersion": "7", "creationTimestamp": "2026-11-15T12:00:00Z"}
    made["data"] |= changes
    return made


def text(**fields: Any) -> str:
    return msgspec.json.encode(record(**fields)).decode()


DEEP = "[" * 200_000
HOSTILE = {
    "another name": (text(name="other"), "about default/other"),
    "another namespace": (text(namespace="kube-system"), "about kube-system/train"),
    "a huge gang": (text(what=job(role(nodes=10**12))), "1000000000000 nodes"),
    "a huge node": (text(what=job(role(nodes=2, procs=10**12))), "2000000000000 ranks"),
    "negative ranks": (text(what=job(role("a", procs=-1), role("b", procs=5))), "4 ranks"),
    "a gang of nothing": (text(what=job(role(nodes=0))), "0 nodes"),
    "negative nodes": (text(what=job(role("a", nodes=-1), role("b", nodes=5))), "4 nodes"),
    "deep nesting": (f'{{"name": "train", "pod": {{"a": {DEEP}', "damaged"),
    "half a record": ('{"name": "train"', "damaged"),
    "no record": ("", "damaged"),
    "a list": ("[]", "damaged"),
    "a number out of range": (text().replace('"created":1.0', '"created":1e999'), "damaged"),
    "long names": (text(name="x" * 300_000), "about default/xxx"),
}


def test_a_record_is_read_with_the_name_of_its_object() -> None:
    assert read_record(body())[0] == record()


@pytest.mark.parametrize("what", HOSTILE)
def test_a_record_that_nobody_acts_upon(what: str) -> None:
    written, told = HOSTILE[what]
    with pytest.raises(BadRecord, match="the record of run train") as caught:
        read_record(body(record=written))
    assert told in caught.value.message and len(caught.value.message) < 400
    assert caught.value.hint == "`longboat rm --force` removes it"


WILD = {
    "attempts without end": '{"attempt": 10000000000}',
    "an attempt before the first": '{"attempt": -1}',
    "a time that no calendar has": '{"started": -1.7e308, "ended": 1.7e308, "phase": "failed"}',
    "an exit code of a thousand digits": f'{{"exit_code": {"9" * 1000}}}',
    "a string without an end": '{"reason": "' + '\\"' * 400_000,
    "a million digits": f'{{"attempt": {"9" * 1_000_000}}}',
    "a million digits where nobody looks": f'{{"x": {"9" * 1_000_000}}}',
    "an attempt's time": '{"attempts": [{"number": 0, "started": 1E+300}]}',
}


@pytest.mark.parametrize("what", WILD)
def test_a_state_whose_numbers_overflow(what: str) -> None:
    """The list of all runs, and the controller, would fail or fill the memory over it."""
    with pytest.raises(BadRecord, match="is damaged"):
        read_record(body(state=WILD[what]))


def test_numbers_in_texts_are_no_numbers() -> None:
    told = {"reason": f'exit code {"9" * 40} \\"1e300', "started": 1763236800.1234567, "ended": 0.30000000000000004}
    assert read_record(body(state=json.dumps(told)))[1].reason == told["reason"]


def test_gpus_that_nobody_can_count() -> None:
    wild = text(what=job(role(resources=Resources(gpus=Gpus(count=7))))).replace('"count":7', f'"count":{"9" * 4299}')
    with pytest.raises(BadRecord, match="out of all bounds"):
        read_record(body(record=wild))


def test_a_message_about_a_record_does_not_steer_a_terminal() -> None:
    with pytest.raises(BadRecord) as caught:
        read_record(body(record=text(namespace="\x1b]0;evil\x07\n")))
    assert caught.value.message.isprintable()


def test_fields_of_a_newer_version_are_no_damage() -> None:
    newer = text()[:-1] + ',"quantum":{"bits":8}}'
    assert read_record(body(record=newer))[0] == record()
    assert hash_of_record(body(record=newer)) != hash_of_record(body())


def test_workloads_of_another_owner_are_not_of_the_run() -> None:
    ours, planted = (WorkloadView(name=name, uid=name, attempt=0, owner=uid) for name, uid in (("a", "u-1"), ("b", "")))
    found = snapshot_of(body(), workloads=[ours, planted], pods=[])
    assert found.workloads == (ours,)
    assert found.made == 1794744000.0, "the server's word, not the record's"


@pytest.mark.parametrize("text", ["{", "7", '{"at": 1e308}', '{"at": 1, "grace_s": 1e300}', '{"at": 1, "grace_s": -5}'])
def test_an_invalid_stop_annotation_still_stops(text: str) -> None:
    made = body()
    made["metadata"]["annotations"] = {STOP: text}
    assert read_stop(made) == StopRequest(at=0.0)


def test_a_moment_that_no_thread_can_wait_for() -> None:
    assert shortest([]) is None and shortest([5.0, 9e15]) == 5.0
    pause = shortest([9e15])
    assert pause is not None and pause < threading.TIMEOUT_MAX
