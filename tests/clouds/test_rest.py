"""Requests to the REST interfaces of clouds: what an answer is, and where a token goes."""

from __future__ import annotations

from typing import Any

import pytest

from longboat.clouds import rest
from longboat.clouds.rest import RestClient, RestFault, fault_of
from tests.clouds.simulated_rest import Body, SimulatedRest


def test_a_token_goes_to_its_host_only() -> None:
    with pytest.raises(RestFault, match="names another host: evil"):
        RestClient("https://management.azure.com").send("GET", "https://evil.example/next", "secret")
    with pytest.raises(RestFault, match="names another host"):
        RestClient("https://management.azure.com").send("GET", "http://management.azure.com/next", "secret")


def test_a_host_that_does_not_answer_is_unsettled() -> None:
    with pytest.raises(RestFault) as caught:
        RestClient("http://127.0.0.1:9").send("GET", "/x", "secret")
    assert caught.value.is_unsettled and "127.0.0.1:9" in caught.value.message and "secret" not in str(caught.value)


def test_an_address_that_is_none() -> None:
    with pytest.raises(RestFault, match="NoAddress: foo: unknown url type"):
        RestClient("foo").send("GET", "/x", "secret")
    with pytest.raises(RestFault, match="NoAddress: .*Invalid IPv6 URL"):
        RestClient("https://[x").send("GET", "/x", "secret")


def test_errors_are_read_with_their_parts() -> None:
    azure = fault_of(
        409, {"code": "Conflict", "message": "a", "details": [{"code": "QuotaExceeded", "message": "b\n c"}]}
    )
    assert (azure.code, azure.message, azure.reasons) == ("Conflict", "a; b c", ("QuotaExceeded",))
    google = fault_of(403, {"code": 403, "status": "PERMISSION_DENIED", "errors": [{"reason": "forbidden"}]})
    assert (google.code, google.message, google.reasons) == ("PERMISSION_DENIED", "", ("forbidden",))


@pytest.mark.parametrize("token", ["secret\n", "se cret", "s\u00e9cret", ""])
def test_a_token_that_is_none_is_not_printed(token: str) -> None:
    with pytest.raises(RestFault) as caught:
        RestClient("http://127.0.0.1:1").send("GET", "/x", token)
    assert "NoToken" in str(caught.value) and "cret" not in str(caught.value)


class Counted(SimulatedRest):
    """A server that answers who asks it."""

    def give_token(self, path: str, query: dict[str, str], data: bytes) -> None:
        return None

    def answer(
        self, method: str, path: str, query: dict[str, str], body: Body | None, headers: Any
    ) -> tuple[int, Body, dict[str, str]]:
        return 200, {"asked": len(self.requests)}, {}


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was waited, which nobody does here."""
    waited: list[float] = []
    monkeypatch.setattr("longboat.clouds.rest.time.sleep", waited.append)
    return waited


@pytest.mark.parametrize("status", [429, 500, 503])
def test_who_is_patient_asks_again_and_orders_once(status: int, pauses: list[float]) -> None:
    with Counted() as server:
        patient = RestClient(server.url, is_patient=True)
        server.hiccups = [("GET", "/x", status, "before")] * 3
        assert patient.send("GET", "/x", server.token).body == {"asked": 4}
        assert pauses == [1.0, 2.0, 4.0], "Retry-After says a second, and the pause is no shorter"
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            server.hiccups = [(method, "/x", status, "before")]
            with pytest.raises(RestFault):
                patient.send(method, "/x", server.token, body={})
        server.hiccups = [("GET", "/x", status, "before")]
        with pytest.raises(RestFault):
            RestClient(server.url).send("GET", "/x", server.token)
        server.hiccups = [("GET", "/x", status, "before")] * 99
        with pytest.raises(RestFault, match="an error that passes"):
            patient.send("GET", "/x", server.token)
        assert len(pauses) == 3 + len(rest.PAUSES_S)


def test_what_does_not_pass_is_told_at_once(pauses: list[float]) -> None:
    with Counted() as server:
        patient = RestClient(server.url, is_patient=True)
        with pytest.raises(RestFault, match="The token expired"):
            patient.send("GET", "/x", "another")
        for status in (400, 403, 404, 409):
            server.hiccups = [("GET", "/x", status, "before")]
            with pytest.raises(RestFault):
                patient.send("GET", "/x", server.token)
    assert pauses == []


def test_a_way_that_breaks_is_tried_again_where_there_was_one(pauses: list[float]) -> None:
    with pytest.raises(RestFault):
        RestClient("http://127.0.0.1:9", is_patient=True).send("GET", "/x", "secret")
    assert pauses == []
    with Counted() as server:
        patient = RestClient(server.url, is_patient=True)
        patient.send("GET", "/x", server.token)
    with pytest.raises(RestFault, match="NoConnection"):
        patient.send("GET", "/x", server.token)
    assert pauses == list(rest.PAUSES_S)


def test_a_pause_that_is_asked_for_is_bounded() -> None:
    assert [rest._pause(text) for text in ("7", "99999", "9999999", "-1", "soon", "", "\u00b2")] == [
        7.0,
        60.0,
        0.0,
        0.0,
        0.0,
        0.0,
        0.0,
    ]


def test_a_page_of_a_proxy_is_one_line() -> None:
    page = b"<html>\n<head><title>502 Bad Gateway</title><style>\nb {}</style></head>\n<body>\n<p>try\nlater</p></body>"
    fault = rest._fault(502, page)
    assert (fault.code, fault.message) == ("HTTP 502", "502 Bad Gateway try later") and fault.is_passing
    assert rest._fault(500, b"").message == "" and rest._fault(500, b"[1]").message == "[1]"
