"""Credentials by the clouds' own libraries, as the commands of a submitter's machine find them. Servers and programs of
credentials are stand-ins that answer as the clouds document it; botocore, google-auth and azure-identity are real."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from longboat.core.errors import EngineError
from longboat.storage.credentials.aws import find_keys
from longboat.storage.credentials.cloud_libraries import AS_LAUNCHERS
from longboat.storage.stores.registry import open_store
from longboat.storage.transfers import Transfer
from longboat.storage.urls import object_url
from tests.storage.lenders import lending
from tests.storage.realstores import ALONE

ONCE = Transfer(timeout_s=5.0, attempts=2, backoff_s=0.01)
LATER = "2035-01-01T00:00:00Z"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A home of this process, without any credentials of the machine's."""
    for name in ("AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_ACCESS_KEY_ID", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    environment = {**ALONE, "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / ".aws").mkdir()
    return environment


def program(path: Path, answer: Mapping[str, object]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!{sys.executable}\nprint({json.dumps(answer)!r})\n")
    path.chmod(0o755)
    return path


class TestProfiles:
    def test_a_program(self, own: dict[str, str], tmp_path: Path) -> None:
        answer = {"Version": 1, "AccessKeyId": "id", "SecretAccessKey": "canary", "SessionToken": "t"}
        lender = program(tmp_path / "lender", {**answer, "Expiration": LATER})
        (tmp_path / ".aws" / "config").write_text(f"[profile lab]\ncredential_process = {lender}\nregion = r-1\n")
        keys = find_keys({**own, "AWS_PROFILE": "lab"}, ONCE)
        assert keys is not None and keys[:3] == ("id", "canary", "t")
        assert keys.expires is not None and time.time() + 500 < keys.expires < time.time() + 700

    def test_sso(self, own: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        start = "https://lab.example.org/start"
        (tmp_path / ".aws" / "config").write_text(
            f"[default]\nsso_start_url = {start}\nsso_region = us-east-1\nsso_account_id = 1\nsso_role_name = reader\n"
        )
        cache = tmp_path / ".aws" / "sso" / "cache"
        cache.mkdir(parents=True)
        with lending() as lender:
            monkeypatch.setenv("AWS_ENDPOINT_URL_SSO", lender.url)
            monkeypatch.setattr(
                "botocore.credentials.SSOProvider._SSO_TOKEN_CACHE_DIR", str(cache)
            )  # of its first home
            with pytest.raises(EngineError, match="the AWS profile default gives no keys") as caught:
                find_keys(own, ONCE)
            assert caught.value.hint == "aws sso login --profile default"
            login = {"startUrl": start, "region": "us-east-1", "accessToken": "canary", "expiresAt": LATER}
            (cache / f"{hashlib.sha1(start.encode()).hexdigest()}.json").write_text(json.dumps(login))
            given = {"accessKeyId": "id", "secretAccessKey": "s", "sessionToken": "t", "expiration": 2051222400000}
            lender.answers["GET /federation/credentials"] = {"roleCredentials": given}
            keys = find_keys(own, ONCE)
        assert keys is not None and keys[:3] == ("id", "s", "t")

    def test_a_profile_that_a_job_names_starts_no_program(self, own: dict[str, str], tmp_path: Path) -> None:
        config = tmp_path / "others"
        config.write_text(f"[default]\ncredential_process = touch {tmp_path / 'started'}\n")
        with pytest.raises(EngineError, match="by credential_process, which is not done here") as caught:
            find_keys({**own, "AWS_CONFIG_FILE": str(config)}, ONCE)
        assert caught.value.hint is not None and "longboat[aws]" in caught.value.hint
        assert not (tmp_path / "started").exists()

    def test_what_a_launcher_goes_on_with_has_none_of_them(self, own: dict[str, str], tmp_path: Path) -> None:
        (tmp_path / ".aws" / "config").write_text(f"[default]\ncredential_process = touch {tmp_path / 'started'}\n")
        with pytest.raises(EngineError, match="by credential_process, which is not done here"):
            find_keys({**own, AS_LAUNCHERS: "1"}, ONCE)
        assert not (tmp_path / "started").exists()

    @pytest.mark.parametrize("line", ["/nonexistent/lender", "echo canary", "false"])
    def test_programs_that_fail(self, own: dict[str, str], tmp_path: Path, line: str) -> None:
        (tmp_path / ".aws" / "config").write_text(f"[default]\ncredential_process = {line}\n")
        with pytest.raises(EngineError, match="the AWS profile default gives no keys") as caught:
            find_keys(own, ONCE)
        assert "canary" not in caught.value.message


def test_a_key_file_of_a_service_account(own: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa")
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with lending() as lender:
        file = tmp_path / "key.json"
        key = {"type": "service_account", "client_email": "a@example.org", "private_key": private.decode()}
        file.write_text(json.dumps({**key, "token_uri": f"{lender.url}/token", "project_id": "p"}))
        environment = {**own, "GOOGLE_APPLICATION_CREDENTIALS": str(file)}
        with pytest.raises(EngineError, match=r"key\.json: credentials of the type service_account are not used here"):
            open_store(object_url("gs://data"), environment, ONCE).request("GET", "k", (), {}, None)
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
        with pytest.raises(EngineError, match=r"key\.json: no token can be had with it"):
            open_store(object_url("gs://data"), environment, ONCE).request("GET", "k", (), {}, None)
        lender.answers["POST /token"] = {"access_token": "lent", "expires_in": 3600, "token_type": "Bearer"}
        request = open_store(object_url("gs://data"), environment, ONCE).request("GET", "k", (), {}, None)
    assert request.headers["Authorization"] == "Bearer lent"


def test_az_login_for_what_is_not_public(own: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with lending() as lender:
        environment = {
            **own,
            "AZURE_STORAGE_ACCOUNT": "lab",
            "AZURE_STORAGE_SERVICE_ENDPOINT": lender.url,
            "AZURE_POD_IDENTITY_AUTHORITY_HOST": "http://127.0.0.1:1",
        }
        lender.answers["GET /data/public"] = "all may read this"
        with open_store(object_url("az://data"), environment, ONCE).open("public", {}, 5.0) as response:
            assert response.read() == b"all may read this"
        with pytest.raises(EngineError, match="there is no such object"):
            open_store(object_url("az://data"), environment, ONCE).open("private", {}, 5.0)
        assert not any("authorization" in headers for headers in lender.headers)
        answer = {"accessToken": "canary", "expires_on": 2051222400, "expiresOn": "2035-01-01 00:00:00.000000"}
        az = program(tmp_path / "bin" / "az", answer)
        monkeypatch.setenv("PATH", f"{az.parent}:/usr/bin:/bin")
        store = open_store(object_url("az://data"), environment, ONCE)
        with store.open("public", {}, 5.0):
            assert "authorization" not in lender.headers[-1]
        with pytest.raises(EngineError):
            store.open("private", {}, 5.0)
    assert lender.headers[-1]["authorization"] == "Bearer canary"
