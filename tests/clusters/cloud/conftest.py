"""A server that plays AWS, one for the tests of a process, and the checker of templates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longboat.cli.cluster import addons
from longboat.cli.cluster.cloud import gcp
from longboat.clouds.aws.session import AwsSession
from longboat.clusters.addons.addon import PoolsText
from tests.autoscaler.providers.conftest import moto, moto_url  # noqa: F401  # fixtures
from tests.clusters.cloud import servers
from tests.storage.realstores import Unavailable

GKE_ACCOUNT = "0d1c6a0e-5c5f-4a6b-9a53-0d7a1c0b1f11"
"""The uid of the autoscaler's service account in a cluster of which only the cloud's side is simulated."""


def pytest_itemcollected(item: pytest.Item) -> None:
    if {"aws", "account", "cloud_programs", "moto"}.intersection(getattr(item, "fixturenames", ())):
        item.add_marker("clouds")


@pytest.fixture(scope="session")
def cloud_programs() -> Path:
    """The folder with cfn-lint and ministack."""
    try:
        return servers.programs()
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def aws_url(cloud_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers.aws_server(tmp_path_factory.mktemp("aws")) as url:
        yield url


@pytest.fixture
def aws(aws_url: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AwsSession:
    """The server that plays AWS, in the environment of this test as its administrator."""
    servers.use_server(monkeypatch, aws_url, tmp_path, servers.ADMIN)
    return AwsSession("us-east-1")


@pytest.fixture(scope="session")
def strict_url(cloud_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers.aws_server(tmp_path_factory.mktemp("strict"), checks_rights=True) as url:
        yield url


class Account:
    """Users with policies on the server."""

    def __init__(self, url: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.url, self.folder, self.patch = url, folder, patch
        self.become(servers.ADMIN)

    def become(self, keys: dict[str, str]) -> AwsSession:
        servers.use_server(self.patch, self.url, self.folder, keys)
        return AwsSession("us-east-1")

    def user(self, name: str, rights: dict[str, Any]) -> None:
        admin = self.become(servers.ADMIN)
        admin.call("iam", "create_user", UserName=name)
        admin.call("iam", "put_user_policy", UserName=name, PolicyName="p", PolicyDocument=json.dumps(rights))
        key = admin.call("iam", "create_access_key", UserName=name)["AccessKey"]
        self.become({"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]})


@pytest.fixture
def account(strict_url: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Account:
    return Account(strict_url, tmp_path, monkeypatch)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[PoolsText]:
    """No API server answers at a simulated cloud: the autoscaler that would be installed there."""
    given: list[PoolsText] = []
    monkeypatch.setattr(
        addons, "install_into", lambda spec, _context, _output, who: given.append(addons.cloud_pools(spec.kind, who))
    )
    monkeypatch.setattr(gcp, "autoscaler_account", lambda _spec: GKE_ACCOUNT)
    return given
