"""The embedded engine imports from a real store, with credentials that are the job's variables and secrets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from longboat.engines.shared.home import Home
from longboat.engines.shared.secrets import set_secret
from longboat.storage.stores.registry import open_store
from longboat.storage.urls import object_url
from tests.conformance.conftest import Jobs
from tests.conformance.places import open_local
from tests.storage.realstores import ALONE, READER, Running

CODE = "print(open('set/x').read(), open('one/x').read())"


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with open_local(tmp_path) as place:
        yield Jobs(place, tmp_path)


def test_credentials_are_the_jobs_own(s3: Running, jobs: Jobs, tmp_path: Path) -> None:
    open_store(object_url("s3://data"), s3.environment).put("embedded/x", b"content")
    data = [{"url": "s3://data/embedded/", "to": "set"}, {"url": "s3://data/embedded/x", "to": "one"}]
    environment = {**jobs.place.environment, **ALONE, "AWS_ACCESS_KEY_ID": READER["AWS_ACCESS_KEY_ID"]}
    set_secret(Home(tmp_path / "home"), "reader", READER["AWS_SECRET_ACCESS_KEY"])
    secrets = {"AWS_ACCESS_KEY_ID": {}, "AWS_SECRET_ACCESS_KEY": {"store": "reader"}}
    env = {"AWS_ENDPOINT_URL": s3.url}
    failed = jobs.run(CODE, environment=environment, data=data, env=env)
    assert (failed.phase, failed.cause, failed.exit_code) == ("failed", "data", 209)
    assert "s3://data/embedded/: not public, and no credentials were found" in failed.reason
    assert "`secrets`" in failed.reason
    done = jobs.run(CODE, environment=environment, data=data, env=env, secrets=secrets)
    assert done.phase == "succeeded", done.reason
    assert jobs.text(done.name) == "content content\n"
    held = [path for path in tmp_path.rglob("*") if path.is_file() and b"canary/of+the+reader" in path.read_bytes()]
    assert held == [tmp_path / "home" / "secrets" / "reader"]
