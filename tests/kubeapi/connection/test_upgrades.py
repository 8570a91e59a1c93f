"""Commands in pods when the way to the API server fails: none is ever asked for twice when it may have been started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError
from longboat.kubeapi.streams.exec import run_in_pod
from tests.storage.answering import Asked, Told, answering

PAGE = b"<html><body><h1>504 Gateway Time-out</h1></body></html>"


def status(code: int, message: str, **more: str) -> Told:
    body = {"kind": "Status", "status": "Failure", "message": message, "code": code}
    return Told(code, json.dumps(body).encode(), tuple(more.items()))


def asked_for(told: Told, folder: Path) -> int:
    """How often a command is asked for of a server that first answers so, and then breaks off."""
    answers = [told]

    def answer(_: Asked) -> Told:
        return answers.pop() if answers else Told(raw=b"")

    with answering(answer) as server:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "x",
            "clusters": [{"name": "x", "cluster": {"server": server.url}}],
            "users": [{"name": "x", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x", "namespace": "default"}}],
        }
        (folder / "kubeconfig").write_text(json.dumps(config))
        with Client.open(environment={"KUBECONFIG": str(folder / "kubeconfig")}) as client:
            with pytest.raises(ApiError):
                run_in_pod(client, "pod", ["rm", "once"], timeout_s=5.0)
        return len(server.requests)


@pytest.mark.parametrize(
    "told",
    [
        Told(504, PAGE),
        Told(502, PAGE),
        Told(500, PAGE),
        Told(503, PAGE),
        Told(503, PAGE, (("Retry-After", "0"),)),
        Told(429, PAGE, (("Retry-After", "0"),)),
        Told(503, b'{"message": "error dialing backend", "code": 503}'),
        status(504, "the server was unable to return a response in the time allotted"),
        status(500, "unable to upgrade connection: EOF"),
        status(500, "container not found"),
        Told(raw=b""),
        Told(raw=b"HTTP/1.1 101"),
        Told(200, b"{}"),
    ],
    ids=lambda told: f"{told.status} {(told.body or told.raw or b'')[:40].decode()}",
)
def test_a_command_that_may_have_been_started_is_not_asked_for_again(told: Told, tmp_path: Path) -> None:
    assert asked_for(told, tmp_path) == 1


@pytest.mark.parametrize(
    "told",
    [
        status(500, "error dialing backend: dial tcp 10.0.0.1:10250: connect: connection refused"),
        status(503, "apiserver is shutting down", **{"Retry-After": "0"}),
        status(429, "too many requests", **{"Retry-After": "0"}),
    ],
    ids=lambda told: str(told.status),
)
def test_a_command_that_has_surely_not_been_started_is_asked_for_again(told: Told, tmp_path: Path) -> None:
    assert asked_for(told, tmp_path) == 2
