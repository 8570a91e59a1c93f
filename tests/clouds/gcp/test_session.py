"""Credentials of Google Cloud that do not do: a network that is away, a key that was deleted, none at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from longboat.clouds.gcp.errors import answer_error
from longboat.clouds.gcp.session import GoogleSession
from longboat.clouds.rest import RestFault
from tests.clouds.gcp.simulated_google import _key
from tests.clouds.simulated_rest import SimulatedRest


def message(address: str, folder: Path, patch: pytest.MonkeyPatch) -> str:
    account = {"type": "service_account", "project_id": "p", "private_key_id": "x", "private_key": _key()}
    (folder / "key.json").write_text(json.dumps({**account, "client_email": "a@b.c", "token_uri": address}))
    patch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(folder / "key.json"))
    with pytest.raises(RestFault) as caught:
        GoogleSession().token()
    return answer_error(caught.value, "get a token").message


def test_where_nobody_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("google.auth")
    assert message("http://127.0.0.1:9/token", tmp_path, monkeypatch).startswith(
        "Google Cloud does not answer: no token"
    )


def test_a_key_that_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("google.auth")

    class Refusing(SimulatedRest):
        def give_token(self, path: str, query: dict[str, str], data: bytes) -> None:
            return None

    with Refusing() as server:
        text = message(f"{server.url}/token", tmp_path, monkeypatch)
    assert text.startswith("Google Cloud does not accept your credentials: ") and "expired" in text, text
