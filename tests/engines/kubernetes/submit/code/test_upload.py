"""Code and launcher on their way into a real namespace: shared, kept while a run uses them, made again when lost."""

from __future__ import annotations

import base64
import gzip
import io
import os
import tarfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from longboat.bundles.snapshot import CodeSnapshot, take
from longboat.bundles.store import BundleStore
from longboat.core.errors import Refused
from longboat.engines.kubernetes.manifests import objects
from longboat.engines.kubernetes.records import Record, State
from longboat.engines.kubernetes.submit import shared_secrets
from longboat.engines.kubernetes.submit.code import packs
from longboat.engines.kubernetes.submit.code import upload as code
from longboat.engines.kubernetes.submit.code.upload import Upload, plan_upload, send
from longboat.engines.shared.containers.launcher_file import launcher_bytes
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import Forbidden
from longboat.kubeapi.kinds import CONFIG_MAP, SECRET
from testbed import api
from testbed.clusters import Cluster
from testbed.fixtures import Kubectl
from tests.engines.kubernetes.manifest_samples import record

WITHIN_S = 60.0


@pytest.fixture
def client(cluster: Cluster, namespace: str) -> Iterator[Client]:
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    with Client.open(namespace=namespace, environment=environment) as found:
        yield found


class Folder:
    """Some code, and runs that use it."""

    def __init__(self, path: Path, client: Client) -> None:
        self.code = path / "code"
        self.code.mkdir()
        self.store = BundleStore(path / "bundles")
        self.client = client

    def take(self) -> CodeSnapshot:
        return take(self.code, self.store)

    def plan(self) -> Upload:
        return plan_upload(self.client, self.store, self.take(), has_storage=False)

    def run(self, name: str) -> tuple[Record, dict[str, Any]]:
        what = msgspec.structs.replace(record(), name=name, namespace=self.client.namespace)
        made = self.client.create(objects.record_object(what, State()))
        return what, objects.owner_of(made)

    def submit(self, name: str, upload: Upload | None = None) -> Upload:
        upload = upload or self.plan()
        send(self.client, self.store, upload, *self.run(name))()
        return upload

    def contents(self, upload: Upload) -> set[bytes]:
        found = set()
        for name in upload.packs:
            data = base64.b64decode(self.client.get(SECRET, name)["data"]["pack"])
            with tarfile.open(fileobj=io.BytesIO(gzip.decompress(data))) as tar:
                found |= {tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
        return found

    def owners(self, name: str) -> list[str]:
        return sorted(owner["name"] for owner in self.client.get(SECRET, name)["metadata"]["ownerReferences"])


@pytest.fixture
def folder(tmp_path: Path, client: Client) -> Folder:
    return Folder(tmp_path, client)


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    api.wait_for(what, condition, WITHIN_S)


@pytest.mark.cluster
def test_code_and_launcher_arrive_as_shared_secrets(folder: Folder, client: Client) -> None:
    (folder.code / "train.py").write_text("print(1)\n")
    upload = folder.submit("first")
    assert folder.contents(upload) == {b"print(1)\n"}
    assert upload.manifest is not None and upload.manifest.packs == len(upload.packs) == 1
    for name in (*upload.packs, upload.launcher):
        secret = client.get(SECRET, name)
        assert secret["immutable"] is True
        assert secret["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "longboat"
        assert "longboat.dev/run" not in secret["metadata"]["labels"]
        assert folder.owners(name) == ["first"]
    launcher = base64.b64decode(client.get(SECRET, upload.launcher)["data"]["launcher.pyz"])
    assert launcher == launcher_bytes()


@pytest.mark.cluster
def test_after_a_change_of_one_file_only_that_file_moves(folder: Folder) -> None:
    for number in range(200):
        (folder.code / f"{number}.py").write_text(f"number = {number}\n" * 50)
    first = folder.submit("first")
    again = folder.submit("again")
    assert again.packs == first.packs and again.new == () and again.size == 0
    (folder.code / "7.py").write_text("changed\n")
    third = folder.submit("third")
    assert third.packs[:-1] == first.packs and len(third.new) == 1
    assert third.size < 500
    assert {each.read_bytes() for each in folder.code.iterdir()} <= folder.contents(third)
    assert folder.owners(first.packs[0]) == ["again", "first", "third"]


@pytest.mark.cluster
def test_the_cluster_removes_code_with_the_last_run_that_used_it(folder: Folder, client: Client) -> None:
    (folder.code / "train.py").write_text("print(1)\n")
    upload = folder.submit("first")
    folder.submit("second")
    client.delete(CONFIG_MAP, "first")
    wait_for("one owner is gone", lambda: folder.owners(upload.packs[0]) == ["second"])
    assert client.find(SECRET, upload.launcher) is not None
    client.delete(CONFIG_MAP, "second")
    wait_for("the code is gone", lambda: client.find(SECRET, upload.packs[0]) is None)
    wait_for("the launcher is gone", lambda: client.find(SECRET, upload.launcher) is None)


@pytest.mark.cluster
def test_a_pack_that_vanished_after_planning_is_made_again(folder: Folder, client: Client) -> None:
    for number in range(5):
        (folder.code / f"{number}.py").write_text(f"{number}\n")
    first = folder.submit("first")
    (folder.code / "0.py").unlink()
    upload = folder.plan()
    assert upload.packs == first.packs and upload.new == ()
    client.delete(SECRET, upload.packs[0])
    client.delete(SECRET, upload.launcher)
    folder.submit("second", upload)
    assert folder.contents(upload) == {b"1\n", b"2\n", b"3\n", b"4\n"}
    assert folder.owners(upload.launcher) == ["second"]


@pytest.mark.cluster
def test_a_pack_that_is_being_removed_is_waited_for_and_made_again(folder: Folder, client: Client) -> None:
    (folder.code / "train.py").write_text("print(1)\n")
    first = folder.submit("first")
    upload = folder.plan()
    name = upload.packs[0]
    client.patch(SECRET, name, {"metadata": {"finalizers": ["example.org/hold"]}})
    before = client.get(SECRET, name)["metadata"]["uid"]
    client.delete(SECRET, name)
    release = threading.Timer(1.0, lambda: client.patch(SECRET, name, {"metadata": {"finalizers": None}}))
    release.start()
    folder.submit("second", upload)
    release.join()
    after = client.get(SECRET, name)["metadata"]
    assert after["uid"] != before and "deletionTimestamp" not in after
    assert folder.contents(first) == {b"print(1)\n"}
    assert folder.owners(name) == ["second"]


@pytest.mark.cluster
def test_runs_that_are_submitted_at_the_same_time_share_what_they_use(folder: Folder) -> None:
    (folder.code / "train.py").write_text("print(1)\n")
    upload = folder.plan()
    runs = [f"run-{number}" for number in range(6)]
    with ThreadPoolExecutor(max_workers=6) as pool:
        list(pool.map(lambda name: folder.submit(name, upload), runs))
    for name in (*upload.packs, upload.launcher):
        assert folder.owners(name) == runs


@pytest.mark.cluster
def test_a_run_without_code_needs_only_the_launcher(folder: Folder, client: Client) -> None:
    upload = plan_upload(client, folder.store, None, has_storage=False)
    folder.submit("first", upload)
    assert upload.packs == () and upload.manifest is None
    assert [each["metadata"]["name"] for each in client.list(SECRET).items] == [upload.launcher]


@pytest.mark.cluster
def test_code_that_is_too_large_for_secrets_goes_to_the_storage_or_nowhere(folder: Folder, client: Client) -> None:
    (folder.code / "weights.bin").write_bytes(os.urandom(15 << 20))
    with pytest.raises(Refused, match="16 packs"):
        folder.plan()
    upload = plan_upload(client, folder.store, folder.take(), has_storage=True)
    assert upload.stored == ("code/0",) and upload.packs == ()
    assert upload.manifest is not None and upload.manifest.packs == 1


def test_a_pack_of_any_size_is_one_file_that_is_always_the_same(tmp_path: Path) -> None:
    source = tmp_path / "code"
    source.mkdir()
    (source / "large").write_bytes(os.urandom(3 << 20))
    (source / "small").write_bytes(b"x")
    store = BundleStore(tmp_path / "bundles")
    hashes = list(take(source, store).objects)
    made = []
    for _ in range(2):
        file = io.BytesIO()
        code.write_pack(file, hashes, store)
        made.append(file.getvalue())
    assert made[0] == made[1]
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(made[0]))) as tar:
        assert [member.name for member in tar] == hashes


def test_the_launcher_is_the_same_every_time() -> None:
    first = code.launcher_name()
    launcher_bytes.cache_clear()
    code.launcher_name.cache_clear()
    assert code.launcher_name() == first


@pytest.mark.cluster
def test_the_largest_pack_fits_into_a_secret(client: Client) -> None:
    index = "objects:" + base64.b64encode(os.urandom(12 * packs.MOST_OBJECTS)).decode()
    pack = packs.NewPack(name="longboat-code-full", index=index, data=os.urandom(packs.LIMIT))
    _, body = code.upload_objects(Upload(launcher=code.launcher_name(), new=(pack,)), client.namespace)
    client.create(body)
    (found,) = code.found_secrets(client, "code")
    assert packs.index_of("x", found["metadata"]["annotations"][code.INDEX]) is not None
    assert "data" not in found


@pytest.mark.cluster
def test_who_may_not_list_secrets_can_submit_all_the_same(
    folder: Folder, cluster: Cluster, kubectl: Kubectl, tmp_path: Path
) -> None:
    kubectl("create", "serviceaccount", "narrow")
    kubectl("create", "role", "narrow", "--verb=create,get,patch", "--resource=secrets,configmaps")
    kubectl("create", "rolebinding", "narrow", "--role=narrow", f"--serviceaccount={folder.client.namespace}:narrow")
    config = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    for user in config["users"]:
        user["user"] = {"token": kubectl("create", "token", "narrow").strip()}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    (folder.code / "train.py").write_text("print(1)\n")
    first = folder.submit("first")
    environment = {**os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig")}
    with Client.open(namespace=folder.client.namespace, environment=environment) as narrow:
        with pytest.raises(Forbidden):
            narrow.list(SECRET)
        upload = plan_upload(narrow, folder.store, folder.take(), has_storage=False)
        assert upload.packs == first.packs and len(upload.new) == 1
        send(narrow, folder.store, upload, *folder.run("second"))()
    assert folder.owners(first.packs[0]) == folder.owners(first.launcher) == ["first", "second"]


def test_a_secret_with_many_owners_is_left_to_them(
    folder: Folder, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run after them makes copies, and the one after that shares those."""
    monkeypatch.setattr(shared_secrets, "MOST_OWNERS", 2)
    (folder.code / "train.py").write_text("print(1)")
    uploads = [folder.submit(name) for name in ("first", "second", "third", "fourth")]
    used = [(upload.launcher, *upload.packs) for upload in uploads]
    assert used[0] == used[1] and used[2] == used[3]
    assert [f"{name}-2" for name in used[0]] == list(used[2])
    for name in used[2]:
        assert len(client.get(SECRET, name)["metadata"]["ownerReferences"]) == 2
    first, second = (client.get(SECRET, names[1])["data"] for names in (used[0], used[2]))
    assert first == second
