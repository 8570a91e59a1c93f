"""Large code through a real store: what is there is not sent again, and launchers fetch it, as plain processes here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from longboat.bundles.snapshot import take
from longboat.bundles.store import BundleStore
from longboat.core.errors import EngineError
from longboat.engines.kubernetes.submit.code import objects as codeobjects
from longboat.engines.kubernetes.submit.code import upload
from longboat.engines.kubernetes.submit.code.objects import folder_of, plan, send_objects
from longboat.launcher.zipapp import write_zipapp
from longboat.storage.stores.registry import open_store
from longboat.storage.urls import object_url
from tests.launcher.pods import Pods
from tests.launcher.test_zipapp import interpreters
from tests.storage.faulty import between
from tests.storage.realstores import ALONE, KEYS, READER, Running


class Tree:
    """A folder of code, and how it is sent."""

    def __init__(self, root: Path, url: str) -> None:
        self.url = url
        self.folder = root / "code"
        self.folder.mkdir()
        self.store = BundleStore(root / "bundles")

    def entries(self) -> list[list[Any]]:
        found = take(self.folder, self.store).entries
        return [[entry.path, entry.kind, entry.hash, entry.executable, entry.target] for entry in found]

    def send(self, environment: dict[str, str]) -> int:
        def write(file: IO[bytes], names: Any) -> None:
            upload.write_pack(file, names, self.store)

        return send_objects(self.url, self.objects(), environment, write)

    def objects(self) -> dict[str, tuple[str, ...]]:
        return plan(take(self.folder, self.store).objects)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path, f"s3://code/{tmp_path.name}")
    (made.folder / "train.py").write_text("print('size', __import__('os').path.getsize('deep/large.bin'))\n")
    (made.folder / "deep").mkdir()
    (made.folder / "deep" / "large.bin").write_bytes(os.urandom(3 << 20))
    for number in range(500):
        (made.folder / f"module_{number}.py").write_text(f"# {os.urandom(5000).hex()}\n")
    return made


@pytest.fixture
def make_pods(tmp_path: Path) -> Iterator[Callable[..., Pods]]:
    made: list[Pods] = []

    def make(tree: Tree, **keys: Any) -> Pods:
        fetched = {"url": folder_of(tree.url), "objects": list(tree.objects())}
        given = {"entries": tree.entries(), "packs": 0, **fetched}
        made.append(Pods(tmp_path / f"gang{len(made)}", code=given, **keys))
        made[-1].folder.mkdir()
        return made[-1]

    yield make
    for pods in made:
        pods.close()


def test_only_what_is_not_there_travels(s3: Running, tree: Tree) -> None:
    environment = dict(s3.environment)
    first = tree.send(environment)
    assert first == len(tree.objects()) > 3
    assert tree.send(environment) == 0
    (tree.folder / "module_7.py").write_text("changed\n")
    assert 1 <= tree.send(environment) <= 3
    (tree.folder / "deep" / "large.bin").write_bytes(b"small now")
    assert 1 <= tree.send(environment) <= 3


def test_what_will_soon_expire_is_written_anew(s3: Running, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = dict(s3.environment)
    count = tree.send(environment)
    monkeypatch.setattr(codeobjects, "REFRESH_S", -60.0)
    assert tree.send(environment) == count


def test_a_submitter_who_may_not_write(s3: Running, tree: Tree) -> None:
    with pytest.raises(EngineError, match="s3://code/.*: the credentials do not allow this"):
        tree.send({**s3.environment, **READER})
    with pytest.raises(EngineError, match="no credentials were found"):
        tree.send({**ALONE, "AWS_ENDPOINT_URL": s3.url})


def secret(pods: Pods, values: dict[str, str]) -> None:
    """As the kubelet mounts one: files, and links of its own."""
    folder = pods.root(0) / "store"
    (folder / "..data").mkdir(parents=True)
    for name, value in values.items():
        (folder / "..data" / name).write_text(value)
        (folder / name).symlink_to(f"..data/{name}")


def test_a_launcher_fetches_the_code(s3: Running, tree: Tree, make_pods: Callable[..., Pods]) -> None:
    tree.send(dict(s3.environment))
    with between(s3.url) as net:
        net.answers += [(503, "SlowDown")] * 2
        net.cuts += [1000] * 3
        pods = make_pods(tree)
        secret(pods, {**KEYS, "AWS_ENDPOINT_URL": net.url + "\n"})
        # The job's own variables are not for this store.
        wrong = {"AWS_SESSION_TOKEN": "of the job", "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
        assert pods.run(env={**ALONE, **wrong}) == [0], pods.message()
    assert pods.log(0, "0.out") == f"size {3 << 20}\n"
    assert not (pods.node(0) / "packs").exists()
    for path in pods.folder.rglob("*"):
        is_mounted = "store" in path.parts
        assert is_mounted or not path.is_file() or b"canary" not in path.read_bytes(), path


def test_a_launcher_without_a_secret_uses_what_the_pod_has(
    s3: Running, tree: Tree, make_pods: Callable[..., Pods]
) -> None:
    tree.send(dict(s3.environment))
    pods = make_pods(tree)
    assert pods.run(env=dict(s3.environment)) == [0], pods.message()


@pytest.mark.parametrize("how", ["gone", "damaged", "refused"])
def test_code_that_cannot_be_had(s3: Running, tree: Tree, make_pods: Callable[..., Pods], how: str) -> None:
    tree.send(dict(s3.environment))
    where = object_url(folder_of(tree.url))
    store = open_store(where, s3.environment)
    name = where.key + next(iter(tree.objects()))
    if how == "gone":
        store.remove(name)
    if how == "damaged":
        store.put(name, b"\x1f\x8b\x08 no pack at all")
    pods = make_pods(tree)
    secret(pods, {**(READER if how == "refused" else KEYS), "AWS_ENDPOINT_URL": s3.url})
    pods.run(env=ALONE)
    words = {
        "gone": "the code cannot be fetched: s3://code/",
        "damaged": "the code is damaged",
        "refused": "the credentials do not allow this",
    }[how]
    message = pods.message()
    assert (message["cause"], message["exit_code"]) == ("setup", 209)
    assert words in message["message"] and "canary" not in str(message)


def test_the_oldest_python_fetches_code_and_data_from_every_kind_of_store(
    s3: Running, azure: Running, tree: Tree, make_pods: Callable[..., Pods], tmp_path: Path
) -> None:
    """Newer ones are tried by all other tests."""
    tree.send(dict(s3.environment))
    for scheme, environment in (("s3", s3.environment), ("az", azure.environment)):
        store = open_store(object_url(f"{scheme}://data"), environment)
        store.put("oldest/one", b"1")
        store.put("oldest/deep/two", b"22")
    urls = ["s3://data/oldest/", "az://data/oldest/", "s3://data/oldest/one", "gs://data/oldest/deep/two"]
    data = [{"url": url, "to": f"data{number}", "sha256": None, "unpack": True} for number, url in enumerate(urls)]
    script = "find -L data0 data1 data2 data3 -path '*/.longboat' -prune -o -type f -print | sort"
    pods = make_pods(tree, command=["/bin/sh", "-c", script], data=data)
    google = {name.replace("AWS_", "GS_"): value for name, value in KEYS.items()}
    environment = {**s3.environment, **azure.environment, **google, "STORAGE_EMULATOR_HOST": s3.url}
    launcher = tmp_path / "launcher.pyz"
    write_zipapp(str(launcher))
    assert pods.run(env=environment, python=interpreters()[0], launcher=launcher) == [0], pods.message()
    found = pods.log(0, "0.out").split()
    assert found == ["data0/deep/two", "data0/one", "data1/deep/two", "data1/one", "data2/one", "data3/two"]
