"""Where AWS credentials come from, in their order. Servers of credentials answer as AWS documents it."""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from longboat.core.errors import EngineError
from longboat.storage.credentials.aws import find_keys
from longboat.storage.credentials.sigv4 import AwsKeys
from longboat.storage.stores.registry import open_store
from longboat.storage.transfers import Transfer
from longboat.storage.urls import object_url
from tests.storage.faulty import between
from tests.storage.lenders import lending
from tests.storage.realstores import ALONE, KEYS, Running

ONCE = Transfer(timeout_s=5.0, attempts=2, backoff_s=0.01)
SOON = "2035-01-01T00:00:00Z"


def found(environment: Mapping[str, str]) -> AwsKeys | None:
    return find_keys({**ALONE, **environment}, ONCE)


def refusal(environment: Mapping[str, str]) -> EngineError:
    with pytest.raises(EngineError) as caught:
        found(environment)
    assert "canary" not in f"{caught.value.message} {caught.value.hint}"
    return caught.value


def lent(number: int = 1, expires: str = SOON) -> dict[str, str]:
    return {
        "AccessKeyId": f"id-{number}",
        "SecretAccessKey": f"canary-{number}",
        "Token": f"token-{number}",
        "Expiration": expires,
    }


def profiles(home: Path, config: str = "", credentials: str = "") -> dict[str, str]:
    (home / ".aws").mkdir()
    (home / ".aws" / "config").write_text(config)
    (home / ".aws" / "credentials").write_text(credentials)
    return {"HOME": str(home)}


def test_variables_come_first(tmp_path: Path) -> None:
    home = profiles(tmp_path, credentials="[default]\naws_access_key_id=file\naws_secret_access_key=s")
    variables = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "s%s", "AWS_SESSION_TOKEN": "t"}
    assert found({**home, **variables}) == AwsKeys("id", "s%s", "t")
    assert found(home) == AwsKeys("file", "s")
    assert found({}) is None


def test_profiles(tmp_path: Path) -> None:
    home = profiles(
        tmp_path,
        config="[default]\nregion = r-1\n[profile lab]\nregion = r-2\nendpoint_url = http://lab:1\ns3 =\n  x = y\n",
        credentials="[lab]\naws_access_key_id = id\naws_secret_access_key = a%b\naws_session_token = t\n",
    )
    assert found(home) is None
    assert found({**home, "AWS_PROFILE": "lab"}) == AwsKeys("id", "a%b", "t")
    store = open_store(object_url("s3://data"), {**ALONE, **home, "AWS_PROFILE": "lab"}, ONCE)
    request = store.request("GET", "k", (), {}, None)
    assert request.url == "http://lab:1/data/k" and "/r-2/s3/" in request.headers["Authorization"]


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    home = profiles(tmp_path, credentials="canary\n")
    assert ".aws/credentials: not a file of AWS profiles" in refusal(home).message


@pytest.mark.parametrize("line", ["sso_session = x", "credential_process = canary", "source_profile = other"])
def test_profiles_that_need_the_aws_program_are_named(tmp_path: Path, line: str) -> None:
    error = refusal(profiles(tmp_path, config=f"[default]\n{line}\n"))
    assert line.split()[0] in error.message
    assert error.hint is not None and "aws configure export-credentials" in error.hint


def test_a_web_identity(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("canary-token\n")
    inside = (
        f"<AccessKeyId>id</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>"
        f"<Expiration>{SOON}</Expiration>"
    )
    answer = (
        '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
        f"<AssumeRoleWithWebIdentityResult><Credentials>{inside}</Credentials></AssumeRoleWithWebIdentityResult>"
        "</AssumeRoleWithWebIdentityResponse>"
    )
    with lending() as lender:
        environment = {
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
            "AWS_ROLE_ARN": "arn:aws:iam::1:role/reader",
            "AWS_ENDPOINT_URL_STS": lender.url,
        }
        assert "arn:aws:iam::1:role/reader" in refusal(environment).message
        lender.answers["POST /"] = answer
        keys = found(environment)
        assert keys is not None and keys[:3] == ("id", "s", "t") and keys.expires == 2051222400.0
        form = dict(urllib.parse.parse_qsl(lender.bodies[-1].decode()))
        assert form["Action"] == "AssumeRoleWithWebIdentity" and form["WebIdentityToken"] == "canary-token"
        lender.answers["POST /"] = "<html/>"
        assert "no token service" in refusal(environment).message
        (tmp_path / "token").unlink()
        assert "AWS_WEB_IDENTITY_TOKEN_FILE" in refusal(environment).message


def test_the_servers_of_containers(tmp_path: Path) -> None:
    (tmp_path / "authorization").write_text("canary-pod\n")
    with lending() as lender:
        environment = {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{lender.url}/v1/credentials",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "authorization"),
        }
        assert "404" in refusal(environment).message
        lender.answers["GET /v1/credentials"] = lent()
        assert found(environment) == AwsKeys("id-1", "canary-1", "token-1", 2051222400.0)
        assert lender.headers[-1]["authorization"] == "canary-pod"
        lender.answers["GET /v1/credentials"] = "{}"
        refusal(environment)
    assert "neither https" in refusal({"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://example.org/x"}).message


def test_the_metadata_of_a_machine() -> None:
    with lending() as lender:
        environment = {"AWS_EC2_METADATA_DISABLED": "false", "AWS_EC2_METADATA_SERVICE_ENDPOINT": lender.url}
        assert found(environment) is None
        folder = "/latest/meta-data/iam/security-credentials/"
        lender.answers["PUT /latest/api/token"] = "session"
        assert found(environment) is None  # a machine without a role
        lender.answers[f"GET {folder}"] = "worker"
        lender.answers[f"GET {folder}worker"] = lent()
        assert found(environment) == AwsKeys("id-1", "canary-1", "token-1", 2051222400.0)
        assert lender.headers[-1]["x-aws-ec2-metadata-token"] == "session"
        count = len(lender.requests)
        assert found({**environment, "AWS_EC2_METADATA_DISABLED": "true"}) is None
        assert len(lender.requests) == count


def test_lent_credentials_are_renewed_before_and_after_they_expire(s3: Running) -> None:
    genuine = {"AccessKeyId": KEYS["AWS_ACCESS_KEY_ID"], "SecretAccessKey": KEYS["AWS_SECRET_ACCESS_KEY"]}
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 60))
    with lending() as lender, between(s3.url) as net:
        lender.answers["GET /"] = [lent(1, soon), lent(2), {**genuine, "Expiration": SOON}]
        environment = {**ALONE, "AWS_ENDPOINT_URL": net.url, "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{lender.url}/"}
        store = open_store(object_url("s3://data"), environment, ONCE)
        assert "id-1/" in store.request("GET", "k", (), {}, None).headers["Authorization"]
        assert "id-2/" in store.request("GET", "k", (), {}, None).headers["Authorization"]
        net.answers.append((400, "ExpiredToken"))
        store.put("renewed", b"1")
        assert len(lender.requests) == 3 and len(net.requests) == 2


def test_many_threads_renew_once(s3: Running) -> None:
    genuine = {"AccessKeyId": KEYS["AWS_ACCESS_KEY_ID"], "SecretAccessKey": KEYS["AWS_SECRET_ACCESS_KEY"]}
    with lending() as lender, between(s3.url) as net, ThreadPoolExecutor(max_workers=8) as pool:
        lender.answers["GET /"] = [lent(1), {**genuine, "Expiration": SOON}]
        environment = {**ALONE, "AWS_ENDPOINT_URL": net.url, "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{lender.url}/"}
        store = open_store(object_url("s3://data"), environment, ONCE)
        net.expired = "id-1/"
        list(pool.map(lambda number: store.put(f"renewed/{number}", b"1"), range(16)))
        assert len(lender.requests) == 2
