"""Refusals of the API server in plain words: those that no test makes a real server say. The others: test_waiting."""

from __future__ import annotations

import pytest

from longboat.engines.kubernetes.explain.admission_errors import admission_trouble, creation_troubles

MESSAGES = [
    (
        'pods "a" is forbidden: exceeded quota: q, requested: cpu=2,memory=1Gi, used: cpu=3,memory=0, limited: cpu=4',
        "quota q does not allow it: asked cpu=2,memory=1Gi, used cpu=3,memory=0, allowed cpu=4",
    ),
    ('admission webhook "a.b" denied the request without explanation', "a.b refuses it: it gives no reason"),
    ("pods is forbidden: no PriorityClass with name urgent was found", "no priority class urgent"),
    (
        'error looking up service account team/bot: serviceaccount "bot" not found',
        "there is no service account bot in the namespace",
    ),
    ("cpu max limit to request ratio per Container is 2, but provided ratio is 4.0", "ratio per Container is 2"),
]


@pytest.mark.parametrize(("message", "words"), MESSAGES, ids=[row[1][:30] for row in MESSAGES])
def test_messages(message: str, words: str) -> None:
    found = admission_trouble(message)
    assert found is not None and words in found.what and found.hint


def test_other_words_are_no_refusal() -> None:
    assert admission_trouble("pods is forbidden: User somebody cannot create resource pods") is None


def test_events_of_jobs_are_told_once_and_unknown_ones_as_they_are() -> None:
    events = [{"reason": "FailedCreate", "message": "Error creating: odd"}] * 2 + [
        {"reason": "Started", "message": "x"}
    ]
    (found,) = creation_troubles(events)
    assert found.what == "its pods cannot be made: Error creating: odd"
