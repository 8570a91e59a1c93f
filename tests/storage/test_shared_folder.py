"""Imports into a folder that others may write to: links that they put there are not followed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from longboat.core.errors import EngineError
from longboat.core.jobs import DataImport
from longboat.storage.credentials.aws import find_keys
from longboat.storage.credentials.azure import find_token
from longboat.storage.data import import_data
from longboat.storage.transfers import Transfer
from tests.storage.answering import Told, answering
from tests.storage.realstores import ALONE

QUICK = Transfer(timeout_s=5.0, attempts=2, backoff_s=0.01)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    found = tmp_path / "mine"
    found.mkdir()
    (found / "file").write_text("mine")
    return found


def key_of(url: str) -> str:
    return hashlib.sha256("\0".join((url, "", "True")).encode()).hexdigest()[:24]


@pytest.mark.parametrize("scheme", ["http", "file"])
@pytest.mark.parametrize("name", ["part", "part.notes", "lock", "json", "stage"])
def test_a_link_in_the_place_of_a_file_of_ours(tmp_path: Path, mine: Path, scheme: str, name: str) -> None:
    target = tmp_path / "target"
    (target / ".longboat").mkdir(parents=True)
    (tmp_path / "x.txt").write_text("new")
    with answering(lambda _: Told(body=b"new", headers=(("ETag", '"t"'),))) as server:
        url = f"{server.url}/x.txt" if scheme == "http" else (tmp_path / "x.txt").as_uri()
        (target / ".longboat" / f"{key_of(url)}.{name}").symlink_to(mine / ("file" if name != "stage" else ""))
        try:
            import_data(DataImport(url=url, to="data"), target, transfer=QUICK)
            assert (target / "x.txt").read_text() == "new" and not (target / "x.txt").is_symlink()
        except EngineError:
            pass
    assert [path.name for path in mine.iterdir()] == ["file"] and (mine / "file").read_text() == "mine"


def test_a_link_in_the_place_of_our_folder(tmp_path: Path, mine: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / ".longboat").symlink_to(mine)
    (tmp_path / "x.txt").write_text("new")
    with pytest.raises(EngineError, match="is a link"):
        import_data(DataImport(url=(tmp_path / "x.txt").as_uri(), to="data"), target)
    assert [path.name for path in mine.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "answer", [b"[" * 4000, b"[]", b"1", b"", b"{}", b'{"AccessKeyId": 1, "SecretAccessKey": []}', b'"x"', b"\xff"]
)
def test_a_server_that_hands_out_no_credentials(answer: bytes) -> None:
    with answering(lambda _: Told(body=answer)) as server:
        environment = {**ALONE, "AWS_CONTAINER_CREDENTIALS_FULL_URI": server.url}
        with pytest.raises(EngineError, match="the container's credentials cannot be had"):
            find_keys(environment, QUICK)
        machine = {"AWS_EC2_METADATA_DISABLED": "", "AWS_EC2_METADATA_SERVICE_ENDPOINT": server.url}
        assert find_keys({**ALONE, **machine}, QUICK) is None
        assert find_token({"AZURE_POD_IDENTITY_AUTHORITY_HOST": server.url}, QUICK) is None
