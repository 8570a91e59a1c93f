"""Object stores and real pods: data comes from a bucket, and code that is too large for Secrets goes through one."""

from __future__ import annotations

import base64
import io
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longboat.core.errors import Refused
from longboat.core.runs import LogQuery
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import CONFIG_MAP, POD, SECRET
from longboat.storage.stores.registry import open_store
from longboat.storage.urls import object_url
from testbed.clusters import Cluster
from tests.engines.kubernetes.benches import IMAGE, Bench
from tests.storage.realstores import KEYS, READER, Running

pytestmark = pytest.mark.pods

LONG_S = 240.0


@pytest.fixture
def client(cluster: Cluster, namespace: str) -> Iterator[Client]:
    with Client.open(namespace=namespace, environment={"KUBECONFIG": str(cluster.kubeconfig)}) as found:
        yield found


def finished(bench: Bench, code: str, **fields: Any) -> tuple[Any, str]:
    """The status and what the ranks and the launcher said."""
    name = bench.engine.submit(bench.submission(code, **fields)).name
    status = bench.engine.wait(name, timeout_s=LONG_S)
    text = b"".join(line.data for line in bench.engine.logs(name, LogQuery())).decode()
    return status, text


READS = """
import os
print(open("one/inside.txt").read())
files = [os.path.join(folder, name) for folder, _, names in os.walk("many/") for name in names]
files = [name for name in files if "/.longboat/" not in name]
print(len(files), sum(os.path.getsize(name) for name in files), sorted(os.listdir("many"))[-1])
"""


def test_data_comes_from_a_bucket_with_credentials_that_are_the_jobs_secrets(
    store: Running, bench: Bench, client: Client
) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        member = tarfile.TarInfo("inside.txt")
        member.size = 6
        tar.addfile(member, io.BytesIO(b"packed"))
    bucket = open_store(object_url("s3://data"), store.environment)
    bucket.put("sets/one.tar.gz", archive.getvalue())
    for number in range(20):
        bucket.put(f"many/part {number % 3}/{number}.bin", bytes([number]) * 1000)
    bench.environment.update(READER)
    given: dict[str, Any] = {"env": {"AWS_ENDPOINT_URL": store.url}, "secrets": list(READER)}
    data = [{"url": "s3://data/sets/one.tar.gz", "to": "one"}, {"url": "s3://data/many/", "to": "many"}]
    status, text = finished(bench, READS, data=data, **given)
    assert status.phase == "succeeded", text
    assert "packed" in text and "20 20000 part 2" in text
    assert READER["AWS_SECRET_ACCESS_KEY"] not in text
    assert holding(client, READER["AWS_SECRET_ACCESS_KEY"]) == [f"Secret {status.name}-env"]

    status, _ = finished(bench, READS, data=[{"url": "s3://data/sets/none.tar.gz", "to": "one"}], **given)
    assert (status.phase, status.cause, status.exit_code) == ("failed", "data", 209)
    assert "s3://data/sets/none.tar.gz: there is no such object" in status.reason


SIZES = """
import os
print("size", os.path.getsize("weights.bin"), len(os.listdir(".")))
print([name for name in os.environ if name.startswith("AWS_")], os.path.exists("/longboat/node/packs"))
"""
FAILS_ONCE = f"import os\nif os.environ['LONGBOAT_ATTEMPT'] == '0': raise SystemExit(3)\n{SIZES}"
PREFIX = "team/longboat/code/"


def with_large_code(bench: Bench, store: Running) -> Path:
    """More than fits into Secrets, and settings that name the store."""
    folder = bench.root / "code"
    folder.mkdir()
    (folder / "weights.bin").write_bytes(os.urandom(17 << 20))
    for number in range(300):
        (folder / f"module_{number}.py").write_text(f"# {os.urandom(8000).hex()}\n")
    with pytest.raises(Refused, match="16 packs"):
        bench.engine.submit(bench.submission(SIZES))
    settings = {"image": IMAGE, "storage": {"url": "s3://code/team", "secret": "store"}}
    (bench.root / "home" / "config.yaml").write_text(json.dumps({"kubernetes": settings}))
    bench.environment.update({**KEYS, "AWS_ENDPOINT_URL": store.url, "HOME": "/nonexistent"})
    bench.engine.close()
    bench.engine = bench.open()
    return folder


def test_code_too_large_for_secrets_goes_through_the_bucket_and_only_changes_travel(
    store: Running, bench: Bench, client: Client
) -> None:
    folder = with_large_code(bench, store)
    with pytest.raises(Refused, match="no Secret store"):
        bench.engine.submit(bench.submission(SIZES))
    client.create(secret("store", {**KEYS, "AWS_ENDPOINT_URL": store.url}))
    status, text = finished(bench, SIZES, nodes=2)
    assert status.phase == "succeeded", text
    assert text.count(f"size {17 << 20} 302") == 2 and text.count("[] False") == 2
    bucket = open_store(object_url("s3://code"), store.environment)
    before = {found.key for found in bucket.listed(PREFIX)}
    assert len(before) > 3
    assert not [each for each in client.list(SECRET).items if each["metadata"]["name"].startswith("longboat-code-")]

    (folder / "module_7.py").write_text("changed\n")
    status, text = finished(bench, FAILS_ONCE, retries=1)
    assert status.phase == "succeeded" and status.attempt == 1, text
    after = {found.key: found.size for found in bucket.listed(PREFIX)}
    new = after.keys() - before
    assert before <= after.keys() and 1 <= len(new) <= 5
    assert sum(after[key] for key in new) < 5 << 20
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in text
    assert holding(client, KEYS["AWS_SECRET_ACCESS_KEY"]) == ["Secret store"]


def test_pods_that_may_not_read_the_code(store: Running, bench: Bench, client: Client) -> None:
    with_large_code(bench, store)
    client.create(secret("store", {**READER, "AWS_ENDPOINT_URL": store.url}))
    status, _ = finished(bench, SIZES)
    assert (status.phase, status.cause, status.exit_code) == ("failed", "setup", 209)
    assert f"the code cannot be fetched: s3://code/{PREFIX}" in status.reason
    assert "the credentials do not allow this" in status.reason


def secret(name: str, values: dict[str, str]) -> dict[str, Any]:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}


def holding(client: Client, value: str) -> list[str]:
    """Objects of ours that hold the value, encoded or not."""
    needles = (value, base64.b64encode(value.encode()).decode())
    found = [(kind.kind, item) for kind in (SECRET, CONFIG_MAP, POD) for item in client.list(kind).items]
    return [
        f"{kind} {item['metadata']['name']}"
        for kind, item in found
        if any(needle in json.dumps(item) for needle in needles)
    ]
