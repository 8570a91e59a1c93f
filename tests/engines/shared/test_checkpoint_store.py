"""Purging a store for a run that a hostile tenant recorded: a real server listens where its record wants them to go."""

from __future__ import annotations

import os
import stat
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longboat.core.errors import EngineError, UsageError
from longboat.core.jobs import Checkpoints, Job, Role, Secret
from longboat.engines.kubernetes.checkpoints import check_places
from longboat.engines.kubernetes.manifests.volumes import places
from longboat.engines.kubernetes.removal import purge_store
from longboat.engines.shared.checkpoint_store import STORES
from longboat.engines.shared.home import Home
from longboat.engines.shared.secrets import set_secret
from tests.engines.kubernetes.run_samples import record
from tests.storage.answering import Answering, Asked, Told, answering

KEYS = {"AWS_ACCESS_KEY_ID": "admin", "AWS_SECRET_ACCESS_KEY": "canary-admin", "AWS_EC2_METADATA_DISABLED": "true"}
EMPTY = b'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"></ListBucketResult>'
NOT_ENDED = b"<EnumerationResults><Blobs/><NextMarker/></EnumerationResults>"


def empty_store(asked: Asked) -> Told:
    return Told(body=NOT_ENDED if "restype" in asked.path else EMPTY)


@pytest.fixture
def attackers_store() -> Iterator[Answering]:
    with answering(empty_store) as server:
        yield server


@pytest.fixture
def callers_store() -> Iterator[Answering]:
    with answering(empty_store) as server:
        yield server


def hostile(to: str, env: dict[str, str], *secrets: Secret, **fields: Any) -> Any:
    job = Job(name="train", roles=(Role(name="worker", run="true", env=env),), secrets=secrets)
    job = msgspec.structs.replace(job, checkpoints=Checkpoints(to=to))
    kept = places(job, None, run="train", uid="0" * 12)
    found = record(job, checkpoint_store=kept.store, checkpoint_dir=kept.checkpoints)
    return msgspec.structs.replace(found, **fields)


def caller(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(tmp_path), "LONGBOAT_HOME": str(tmp_path / "home"), **KEYS, **more}


def poisoned(attackers_store: Answering, canary: Path) -> dict[str, str]:
    """Every variable by which anything about stores can be redirected."""
    host = urllib.parse.urlsplit(attackers_store.url).netloc
    return {
        "AWS_ENDPOINT_URL": attackers_store.url,
        "AWS_ENDPOINT_URL_S3": attackers_store.url,
        "AWS_ENDPOINT_URL_STS": attackers_store.url,
        "AWS_ROLE_ARN": "arn:aws:iam::1:role/x",
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(canary),
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": attackers_store.url,
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(canary),
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": attackers_store.url,
        "AWS_EC2_METADATA_DISABLED": "false",
        "AWS_CONFIG_FILE": str(canary),
        "AWS_SHARED_CREDENTIALS_FILE": str(canary),
        "AWS_CA_BUNDLE": str(canary),
        "HTTP_PROXY": attackers_store.url,
        "HTTPS_PROXY": attackers_store.url,
        "http_proxy": attackers_store.url,
        "HOME": str(canary.parent),
        "LONGBOAT_HOME": str(canary.parent),
        "STORAGE_EMULATOR_HOST": host,
        "GCE_METADATA_HOST": host,
        "GOOGLE_APPLICATION_CREDENTIALS": str(canary),
        "AZURE_STORAGE_ACCOUNT": "evil",
        "AZURE_STORAGE_SERVICE_ENDPOINT": attackers_store.url,
        "AZURE_AUTHORITY_HOST": attackers_store.url,
        "AZURE_POD_IDENTITY_AUTHORITY_HOST": attackers_store.url,
        "AZURE_FEDERATED_TOKEN_FILE": str(canary),
        "AZURE_TENANT_ID": "t",
        "AZURE_CLIENT_ID": "c",
    }


def test_credentials_go_to_the_callers_endpoint_and_nowhere_else(
    attackers_store: Answering, callers_store: Answering, tmp_path: Path
) -> None:
    canary = tmp_path / "file"
    canary.write_text("canary-file")
    secrets = (Secret(name="AWS_ACCESS_KEY_ID", file=str(canary)), Secret(name="AWS_ENDPOINT_URL", env="EVIL"))
    found = hostile("s3://data/x", poisoned(attackers_store, canary), *secrets)
    purge_store(found, caller(tmp_path, AWS_ENDPOINT_URL=callers_store.url, EVIL=attackers_store.url))
    assert attackers_store.requests == [] and len(callers_store.requests) == 1
    assert "Credential=admin/" in callers_store.requests[0].headers["authorization"]
    assert "canary" not in repr(callers_store.requests)


@pytest.mark.parametrize("by_secret", [False, True])
@pytest.mark.parametrize(
    ("url", "names"),
    [
        ("s3://data/x", ["AWS_ENDPOINT_URL"]),
        ("gs://data/x", ["STORAGE_EMULATOR_HOST"]),
        ("az://data/x", ["AZURE_STORAGE_CONNECTION_STRING"]),
    ],
)
def test_a_server_that_only_the_record_names_is_not_asked(
    attackers_store: Answering, tmp_path: Path, url: str, names: list[str], by_secret: bool
) -> None:
    host = urllib.parse.urlsplit(attackers_store.url).netloc
    account = f"AccountName=evil;AccountKey=Y2FuYXJ5;BlobEndpoint={attackers_store.url}"
    values = {
        "AWS_ENDPOINT_URL": attackers_store.url,
        "STORAGE_EMULATOR_HOST": host,
        "AZURE_STORAGE_CONNECTION_STRING": account,
    }
    given = {name: values[name] for name in names}
    files = [tmp_path / name for name in names]
    for file in files:
        file.write_text(values[file.name])
    secrets = tuple(Secret(name=file.name, file=str(file)) for file in files) if by_secret else ()
    found = hostile(url, {} if by_secret else given, *secrets)
    with pytest.raises(EngineError, match="cannot be removed") as caught:
        purge_store(found, caller(tmp_path))
    assert attackers_store.requests == []
    assert names[0] in caught.value.message and caught.value.hint is not None and names[0] in caught.value.hint
    assert attackers_store.url not in f"{caught.value.message} {caught.value.hint}"


def test_the_hint_names_what_the_run_had_of_its_own(callers_store: Answering, tmp_path: Path) -> None:
    found = hostile("s3://data/x", {"AWS_REGION": "x"}, Secret(name="AWS_ACCESS_KEY_ID"), Secret(name="HF_TOKEN"))
    with answering(lambda _: Told(403, b"<Error><Code>AccessDenied</Code></Error>")) as refusing:
        with pytest.raises(EngineError) as caught:
            purge_store(found, caller(tmp_path, AWS_ENDPOINT_URL=refusing.url))
    assert caught.value.hint is not None and "AWS_ACCESS_KEY_ID, AWS_REGION of its own" in caught.value.hint
    assert "HF_TOKEN" not in caught.value.hint


def test_secrets_of_the_callers_own_store_are_used_under_their_own_names(
    callers_store: Answering, tmp_path: Path
) -> None:
    home = Home(tmp_path / "home")
    set_secret(home, "AWS_ENDPOINT_URL", callers_store.url)
    set_secret(home, "HF_TOKEN", "canary-token")
    purge_store(hostile("s3://data/x", {}, Secret(name="AWS_ACCESS_KEY_ID", store="HF_TOKEN")), caller(tmp_path))
    assert len(callers_store.requests) == 1 and "canary" not in repr(callers_store.requests)


@pytest.mark.parametrize(
    "fields",
    [
        {"checkpoint_store": "s3://prod"},
        {"checkpoint_store": "s3://prod/other-run-00000000"},
        {"checkpoint_store": "s3://data/x/train-00000000/../other"},
        {"uid": "f" * 12},
        {"checkpoint_dir": "/"},
    ],
)
def test_only_folders_that_are_the_runs_own_are_emptied(
    fields: dict[str, Any], callers_store: Answering, tmp_path: Path
) -> None:
    found = hostile("s3://data/x", {}, **fields)
    with pytest.raises(EngineError, match="not those of this run"):
        purge_store(found, caller(tmp_path, AWS_ENDPOINT_URL=callers_store.url))
    assert callers_store.requests == []
    with pytest.raises(EngineError, match="not those of this run"):
        check_places(found)


def test_the_names_of_stores_variables_are_all_known() -> None:
    assert all(name.startswith(STORES) for name in ("AWS_PROFILE", "GS_ACCESS_KEY_ID", "AZURE_STORAGE_KEY"))


def test_root_starts_nothing_of_another_users_run(tmp_path: Path) -> None:
    if os.getuid():
        pytest.skip("needs root")
    from longboat.engines.engine import Submission
    from longboat.engines.local.engine import LocalEngine
    from longboat.engines.local.records import LocalState
    from longboat.engines.local.runfiles import RunFiles
    from longboat.engines.shared.files import locked

    said: list[str] = []
    engine = LocalEngine(tmp_path / "home", on_notice=said.append)
    role = Role(name="worker", run=("sh", "-c", "touch ran; sleep 60"))
    job = Job(name="theirs", roles=(role,), ends=("worker",), workdir=None)
    name = engine.submit(Submission(job=job, base=str(tmp_path))).name
    engine.stop(name, grace_s=0)
    engine.wait(name)
    folder = tmp_path / "home" / "runs" / name
    files = RunFiles(folder)
    with locked(files.lock):  # its supervisor has left
        files.write_state(LocalState(reason="is being started"))  # as if it had been killed early
        files.stop.unlink()
    os.chown(folder, 65534, 65534)
    os.chmod(folder, stat.S_IRWXU)
    assert [one.name for one in engine.list()] == [name]
    assert any("only its owner" in text for text in said)
    assert engine.status(name).phase == "pending"
    with pytest.raises(UsageError, match="run of another user"):
        engine.exec(name, ["true"])
    os.chown(folder, 0, 0)
    engine.delete(name)
