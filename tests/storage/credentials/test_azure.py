from __future__ import annotations

import time
import urllib.parse
from pathlib import Path

import pytest

from longboat.core.errors import EngineError
from longboat.storage.credentials.azure import AzureAccount, find_account, find_token
from longboat.storage.stores.registry import open_store
from longboat.storage.transfers import Transfer
from longboat.storage.urls import object_url
from tests.storage.lenders import lending

ONCE = Transfer(timeout_s=5.0, attempts=2, backoff_s=0.01)


def test_an_account_is_named_in_several_ways() -> None:
    text = "DefaultEndpointsProtocol=http;AccountName=one;AccountKey=Y2FuYXJ5;EndpointSuffix=example.org"
    assert find_account({"AZURE_STORAGE_CONNECTION_STRING": text}) == AzureAccount(
        "one", "http://one.blob.example.org", b"canary"
    )
    assert find_account({"AZURE_STORAGE_ACCOUNT": "two", "AZURE_STORAGE_SAS_TOKEN": "?sv=1&sig=2"}) == AzureAccount(
        "two", "https://two.blob.core.windows.net", None, "sv=1&sig=2"
    )
    sas = "BlobEndpoint=https://three.blob.example.org/;SharedAccessSignature=sv=1&sig=a%3D"
    assert find_account({"AZURE_STORAGE_CONNECTION_STRING": sas}).sas == "sv=1&sig=a%3D"
    assert find_account({"AZURE_STORAGE_CONNECTION_STRING": sas}).name == "three"
    emulator = find_account({"AZURE_STORAGE_CONNECTION_STRING": "UseDevelopmentStorage=true"})
    assert emulator.endpoint == "http://127.0.0.1:10000/devstoreaccount1" and emulator.key


def test_what_names_no_account_is_told_without_its_secrets() -> None:
    with pytest.raises(EngineError, match="no Azure storage account") as caught:
        find_account({})
    assert caught.value.hint is not None and "AZURE_STORAGE_ACCOUNT" in caught.value.hint
    with pytest.raises(EngineError, match="not base64") as caught:
        find_account({"AZURE_STORAGE_ACCOUNT": "x", "AZURE_STORAGE_KEY": "canary!"})
    assert "canary" not in caught.value.message
    assert "canary" not in repr(AzureAccount("n", "e", b"canary", "canary"))


def test_a_workload_identity(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("federated\n")
    with lending() as lender:
        environment = {
            "AZURE_CLIENT_ID": "client",
            "AZURE_TENANT_ID": "tenant",
            "AZURE_FEDERATED_TOKEN_FILE": str(tmp_path / "token"),
            "AZURE_AUTHORITY_HOST": lender.url,
        }
        lender.answers["POST /tenant/oauth2/v2.0/token"] = {"access_token": "lent", "expires_in": 3600}
        token = find_token(environment, ONCE)
        form = dict(urllib.parse.parse_qsl(lender.bodies[0].decode()))
        assert form["client_assertion"] == "federated" and form["scope"] == "https://storage.azure.com/.default"
        assert token is not None and token.text == "lent" and token.expires > time.time() + 3000
        store = open_store(object_url("az://data"), {**environment, "AZURE_STORAGE_ACCOUNT": "x"}, ONCE)
        headers = store.request("GET", "k", (), {}, None).headers
        assert headers["Authorization"] == "Bearer lent" and headers["x-ms-version"]
        secret = {**environment, "AZURE_CLIENT_SECRET": "canary"}
        lender.answers.clear()
        with pytest.raises(EngineError, match="404") as caught:
            find_token(secret, ONCE)
        assert "canary" not in caught.value.message


def test_the_identity_of_a_machine() -> None:
    with lending() as lender:
        environment = {"AZURE_POD_IDENTITY_AUTHORITY_HOST": lender.url}
        assert find_token(environment, ONCE) is None
        lender.answers["GET /metadata/identity/oauth2/token"] = {"access_token": "lent", "expires_in": "3600"}
        token = find_token(environment, ONCE)
        assert token is not None and token.text == "lent"
        assert lender.headers[-1]["metadata"] == "true"
