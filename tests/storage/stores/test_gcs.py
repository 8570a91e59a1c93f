"""Google's store speaks S3's language: HMAC keys are tried against a real S3 server, tokens as they are documented."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from longboat.core.errors import EngineError
from longboat.storage.stores import gcs
from longboat.storage.stores.object_store import ObjectStore
from longboat.storage.stores.registry import open_store
from longboat.storage.transfers import Transfer
from longboat.storage.urls import object_url
from tests.storage.lenders import lending
from tests.storage.realstores import KEYS, Running

ONCE = Transfer(timeout_s=5.0, attempts=2, backoff_s=0.01)
HMAC = {name.replace("AWS_", "GS_"): value for name, value in KEYS.items()}
NOWHERE = {"HOME": "/nonexistent", "GCE_METADATA_HOST": "127.0.0.1:1"}


def opened(environment: Mapping[str, str]) -> ObjectStore:
    return open_store(object_url("gs://data"), {**NOWHERE, **environment}, ONCE)


def test_hmac_keys(s3: Running) -> None:
    store = opened({**HMAC, "STORAGE_EMULATOR_HOST": s3.url.removeprefix("http://")})
    store.put("google/a b", b"1")
    assert [found.key for found in store.listed("google/")] == ["google/a b"]
    with store.open("google/a b", {}, 10.0) as response:
        assert response.read() == b"1"
    with pytest.raises(EngineError, match="gs://data/nothing: there is no such object"):
        store.open("nothing", {}, 10.0)


def test_without_any_credentials(s3: Running) -> None:
    store = opened({"STORAGE_EMULATOR_HOST": s3.url, **KEYS})  # keys of AWS are no keys of Google's
    with pytest.raises(EngineError, match="no credentials were found") as caught:
        store.open("x", {}, 10.0)
    assert caught.value.hint is not None and "GS_ACCESS_KEY_ID" in caught.value.hint


def test_a_token_of_a_variable_or_of_the_machine() -> None:
    request = opened({"GOOGLE_OAUTH_ACCESS_TOKEN": "given"}).request("GET", "a b", (), {}, None)
    assert request.url == "https://storage.googleapis.com/data/a%20b"
    assert request.headers["Authorization"] == "Bearer given"
    with lending() as lender:
        path = "/computeMetadata/v1/instance/service-accounts/default/token"
        lender.answers[f"GET {path}"] = [
            {"access_token": "first", "expires_in": 30},
            {"access_token": "second", "expires_in": 3600},
        ]
        store = opened({"GCE_METADATA_HOST": lender.url.removeprefix("http://")})
        told = [store.request("GET", "k", (), {}, None).headers["Authorization"] for _ in range(3)]
        assert told == ["Bearer first", "Bearer second", "Bearer second"]  # the first runs out at once
        assert lender.headers[0]["metadata-flavor"] == "Google"


def test_the_login_of_gcloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "adc.json"
    login = {"type": "authorized_user", "client_id": "c", "client_secret": "canary", "refresh_token": "canary-2"}
    file.write_text(json.dumps(login))
    environment = {"GOOGLE_APPLICATION_CREDENTIALS": str(file)}
    with lending() as lender:
        monkeypatch.setattr(gcs, "TOKENS", f"{lender.url}/token")
        with pytest.raises(EngineError, match="no token can be had") as caught:
            opened(environment).request("GET", "k", (), {}, None)
        assert "canary" not in f"{caught.value.message} {caught.value.hint}"
        lender.answers["POST /token"] = {"access_token": "fresh", "expires_in": 3600}
        assert opened(environment).request("GET", "k", (), {}, None).headers["Authorization"] == "Bearer fresh"
        assert b"grant_type=refresh_token" in lender.bodies[-1]


@pytest.mark.parametrize("text", ['{"type": "service_account", "private_key": "canary"}', "canary", "[]"])
def test_files_that_are_not_used_are_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "key.json"
    file.write_text(text)
    with pytest.raises(EngineError, match=r"key\.json") as caught:
        opened({"GOOGLE_APPLICATION_CREDENTIALS": str(file)}).request("GET", "k", (), {}, None)
    assert "canary" not in f"{caught.value.message} {caught.value.hint}"
