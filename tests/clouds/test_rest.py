"""Requests to the REST interfaces of clouds: what an answer is, and where a token goes."""

from __future__ import annotations

import pytest

from longboat.clouds.rest import RestClient, RestFault, fault_of


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
