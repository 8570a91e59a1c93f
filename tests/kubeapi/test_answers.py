"""Statuses become our errors, with the server's own words."""

from __future__ import annotations

import json

import pytest

from longboat.kubeapi.answers import error_in, error_of
from longboat.kubeapi.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    ObjectNotFound,
    Unreachable,
)


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (400, "BadRequest", Invalid),
        (401, "Unauthorized", Unreachable),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", ObjectNotFound),
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (410, "Expired", Expired),
        (405, "MethodNotAllowed", ApiError),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", Unreachable),
        (500, "InternalError", Unreachable),
        (503, "ServiceUnavailable", Unreachable),
    ],
)
def test_each_status_has_its_error(status: int, reason: str, kind: type[ApiError]) -> None:
    told = {"kind": "Status", "message": "in its own words", "reason": reason, "details": {"name": "x"}}
    found = error_of(status, json.dumps(told).encode(), "GET /x")
    assert type(found) is kind
    assert (found.status, found.reason, found.details) == (status, reason, {"name": "x"})
    assert "in its own words" in found.message


@pytest.mark.parametrize("body", [b"", b"<html>bad gateway</html>", b"[1]", b"\xff\xfe", b'{"kind": "Pod"}'])
def test_what_is_no_status_is_survived(body: bytes) -> None:
    found = error_of(404, body, "GET /x")
    assert isinstance(found, ObjectNotFound)
    assert found.message


def test_a_health_check_that_fails_names_all_parts_that_do() -> None:
    passed = "".join(f"[+]poststarthook/start-controller-{at} ok\n" for at in range(40))
    body = f"{passed}[-]etcd failed: reason withheld\n{passed}[-]poststarthook/rbac failed\nreadyz check failed\n"
    message = error_of(500, body.encode(), "GET /readyz").message
    assert message.endswith(": [-]etcd failed: reason withheld\n[-]poststarthook/rbac failed")


def test_when_to_come_back_is_kept() -> None:
    assert error_of(429, b"", "GET /x", retry_after_s=7.0).details == {"retryAfterSeconds": 7.0}


def test_a_status_inside_a_stream() -> None:
    assert isinstance(error_in({"code": 410, "reason": "Expired", "message": "too old"}, "watch"), Expired)


def test_an_unknown_field_in_an_apply_is_no_broken_server() -> None:
    told = {
        "kind": "Status",
        "message": "failed to create typed patch object (/x): .dota: field not declared",
        "code": 500,
    }
    assert type(error_of(500, json.dumps(told).encode(), "PATCH /x")) is Invalid


@pytest.mark.parametrize(
    ("message", "is_hinted"),
    [('configmaps is forbidden: User "a" cannot list resource "configmaps"', True), ("exceeded quota: q", False)],
)
def test_a_missing_right_has_a_hint(message: str, is_hinted: bool) -> None:
    body = json.dumps({"kind": "Status", "reason": "Forbidden", "message": message}).encode()
    assert ("ask for this right" in (error_of(403, body, "list").hint or "")) is is_hinted


def test_the_address_of_a_kubelet_is_not_shown() -> None:
    address = "https://10.1.2.3:10250/containerLogs/default/train-a0-worker-0/longboat?follow=true"
    reason = "dial tcp 10.1.2.3:10250: connect: no route to host"
    told = {"kind": "Status", "message": f'Get "{address}": {reason}', "code": 500}
    found = error_of(500, json.dumps(told).encode(), "GET /x").message
    assert found.endswith(f"the kubelet of machine 10.1.2.3 does not answer: {reason}") and "https" not in found
