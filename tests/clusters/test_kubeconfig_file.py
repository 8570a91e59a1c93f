"""The user's kubeconfig: what is ours comes and goes, the rest stays."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from longboat.clusters import kubeconfig_file
from longboat.clusters.kubeconfig_file import backup_of, check_name, drop_context, merge, put_context, remove
from longboat.core.errors import EngineError, LongboatError, NotFound, UsageError
from longboat.kubeapi import kubeconfig
from longboat.kubeapi.errors import KubeconfigError

ADMIN = """\
apiVersion: v1
kind: Config
clusters: [{name: kubernetes, cluster: {server: "https://10.0.0.5:6443", certificate-authority-data: Y2E=}}]
users: [{name: kubernetes-admin, user: {client-certificate-data: Yw==, client-key-data: aw==}}]
contexts: [{name: kubernetes-admin@kubernetes, context: {cluster: kubernetes, user: kubernetes-admin}}]
current-context: kubernetes-admin@kubernetes
"""
MINE = """\
# written by hand
apiVersion: v1
kind: Config
preferences: {colors: true}
clusters:
- name: work
  cluster: {server: "https://work.example.org", insecure-skip-tls-verify: true, x-unknown: [1, 2]}
users:
- name: me
  user: {token: 123_456, exec: {command: get-token, args: ["on", "0x10"], env: [{name: A, value: "1e3"}]}}
contexts:
- {name: work, context: {cluster: work, user: me, namespace: vision}}
current-context: work
"""


def other(text: str) -> str:
    return text.replace("10.0.0.5", "10.0.0.6").replace("Y2E=", "b3RoZXI=")


def entries(text: str, plural: str) -> list[str]:
    return [entry["name"] for entry in yaml.safe_load(text).get(plural) or []]


def test_merge_into_an_empty_kubeconfig() -> None:
    merged = yaml.safe_load(merge("", ADMIN, "lab"))
    assert (merged["kind"], merged["current-context"]) == ("Config", "lab")
    assert [merged[plural][0]["name"] for plural in ("clusters", "users", "contexts")] == ["lab", "lab-admin", "lab"]
    assert merged["contexts"][0]["context"]["cluster"] == "lab"


def test_the_rest_stays_as_it_is_written() -> None:
    merged = merge(MINE, ADMIN, "lab")
    assert entries(merged, "contexts") == ["work", "lab"]
    assert yaml.safe_load(merged)["current-context"] == "work"
    assert "123_456" in merged and "'0x10'" in merged.replace('"', "'") and "'1e3'" in merged.replace('"', "'")
    assert yaml.safe_load(remove(merged, "lab")) == yaml.safe_load(MINE)
    assert yaml.safe_load(merge(MINE, ADMIN, "lab", is_current=True))["current-context"] == "lab"


def test_again_is_the_same_and_a_new_cluster_of_the_name_replaces_ours() -> None:
    merged = merge(MINE, ADMIN, "lab")
    assert merge(merged, ADMIN, "lab") == merged
    renewed = yaml.safe_load(merge(merged, other(ADMIN), "lab"))
    assert [each["cluster"]["server"] for each in renewed["clusters"]][1:] == ["https://10.0.0.6:6443"]


@pytest.mark.parametrize(
    "text",
    [
        MINE,
        "{clusters: [{name: work, cluster: {server: x}}]}",
        "{users: [{name: work-admin, user: {}}]}",
        "{contexts: [{name: work, context: {}}]}",
    ],
)
def test_what_is_not_ours_is_not_replaced(text: str) -> None:
    with pytest.raises(UsageError, match="that Longboat did not make"):
        merge(text, ADMIN, "work")


def test_the_same_cluster_put_there_by_hand_becomes_ours() -> None:
    by_hand = merge("", ADMIN, "lab").replace("longboat.dev/cluster", "something.else/x")
    assert "longboat.dev/cluster" in merge(by_hand, ADMIN, "lab")
    with pytest.raises(UsageError):
        merge(by_hand, other(ADMIN), "lab")


def test_only_ours_is_removed_and_only_what_nobody_else_uses() -> None:
    with pytest.raises(UsageError, match="not made by Longboat"):
        remove(MINE, "work")
    with pytest.raises(NotFound):
        remove(MINE, "lab")
    merged: dict[str, Any] = yaml.safe_load(merge(MINE, ADMIN, "lab"))
    merged["contexts"].append({"name": "also", "context": {"cluster": "lab", "user": "me"}})
    left = remove(yaml.safe_dump(merged), "lab")
    assert (entries(left, "clusters"), entries(left, "users")) == (["work", "lab"], ["me"])


def test_the_current_context_goes_with_it() -> None:
    assert yaml.safe_load(remove(merge("", ADMIN, "lab"), "lab"))["current-context"] == ""


@pytest.mark.parametrize(
    "text", ["[", "[]", "{kind: Pod}", "token: 'secret", "users: secret", "users: {a: 1}", "users: [secret]"]
)
def test_what_is_no_kubeconfig_is_not_repeated(text: str) -> None:
    with pytest.raises(KubeconfigError) as caught:
        merge(text, ADMIN, "lab")
    assert "secret" not in str(caught.value)
    with pytest.raises(LongboatError):
        merge("", text, "lab")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder" / "config"


def test_the_file_is_changed_with_a_backup_and_closed_to_others(file: Path) -> None:
    file.write_text(MINE)
    file.chmod(0o644)
    environment = {"KUBECONFIG": f"{file}{os.pathsep}{file.parent}/second"}
    assert put_context(ADMIN, "lab", environment) == file
    assert backup_of(file).read_text() == MINE
    assert [path.stat().st_mode & 0o777 for path in (file, backup_of(file))] == [0o600, 0o600]
    assert sorted(path.name for path in file.parent.iterdir()) == ["config", "config.longboat.bak"]
    access = kubeconfig.find("lab", None, environment)
    assert access.server == "https://10.0.0.5:6443"
    assert put_context(ADMIN, "lab", environment) is None
    sorted_anew = yaml.safe_dump(yaml.safe_load(file.read_text()))  # as kubectl leaves it
    file.write_text(sorted_anew)
    assert put_context(ADMIN, "lab", environment) is None and file.read_text() == sorted_anew
    assert drop_context("lab", environment) == file
    assert yaml.safe_load(file.read_text()) == yaml.safe_load(MINE)
    assert drop_context("lab", environment) is None


def test_a_first_file_is_made_in_the_home(tmp_path: Path) -> None:
    made = put_context(ADMIN, "lab", {"HOME": str(tmp_path)})
    assert made == tmp_path / ".kube" / "config" and made.stat().st_mode & 0o777 == 0o600
    assert made.parent.stat().st_mode & 0o777 == 0o700 and not backup_of(made).exists()
    assert drop_context("other", {"HOME": str(tmp_path)}) is None


def test_a_link_stays_a_link(file: Path, tmp_path: Path) -> None:
    file.write_text(MINE)
    (tmp_path / "link").symlink_to(file)
    assert put_context(ADMIN, "lab", {"KUBECONFIG": str(tmp_path / "link")}) == file
    assert (tmp_path / "link").is_symlink() and "lab" in file.read_text()


def test_a_file_that_cannot_be_read_is_left_alone(file: Path) -> None:
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(KubeconfigError, match="not UTF-8"):
        put_context(ADMIN, "lab", {"KUBECONFIG": str(file)})
    file.write_text("[")
    with pytest.raises(KubeconfigError, match="config: line 1: not YAML"):
        put_context(ADMIN, "lab", {"KUBECONFIG": str(file)})
    assert file.read_text() == "[" and [path.name for path in file.parent.iterdir()] == ["config"]


def test_writers_wait_for_each_other_and_lose_nothing(file: Path) -> None:
    environment = {"KUBECONFIG": str(file)}
    names = [f"lab-{number}" for number in range(6)]
    threads = [threading.Thread(target=put_context, args=(ADMIN, name, environment)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(entries(file.read_text(), "contexts")) == names


def test_a_lock_that_stays_is_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubeconfig_file, "LOCK_S", 0.1)
    Path(f"{file}.lock").write_text("")
    with pytest.raises(EngineError) as caught:
        put_context(ADMIN, "lab", {"KUBECONFIG": str(file)})
    assert caught.value.hint == f"if no kubectl is at work, remove {file}.lock"


def test_a_backup_is_not_written_over_by_the_next(tmp_path: Path) -> None:
    """`up`, `down`, `up`: what was there before all of it is still there, and a change in between is kept too."""
    file = tmp_path / "config"
    file.write_text(MINE)
    environment = {"KUBECONFIG": str(file)}
    put_context(ADMIN, "lab", environment)
    drop_context("lab", environment)
    assert [path.name for path in tmp_path.glob("*.bak*")] == ["config.longboat.bak"]
    assert (tmp_path / "config.longboat.bak").read_text() == MINE
    later = file.read_text() + "note: mine\n"
    file.write_text(later)
    put_context(ADMIN, "lab", environment)
    assert (tmp_path / "config.longboat.bak").read_text() == MINE
    assert backup_of(file).name == "config.longboat.bak.1" and backup_of(file).read_text() == later


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (MINE.replace("name: work", "name: lab"), "an entry lab in clusters"),
        (MINE.replace("- {name: work, context", "- {name: lab, context"), "an entry lab in contexts"),
        (MINE.replace("name: me", "name: lab-admin"), "an entry lab-admin in users"),
        (MINE, ""),
        (merge(MINE, ADMIN, "lab"), ""),
        ("", ""),
    ],
)
def test_a_name_that_is_taken_is_told_before_there_is_a_cluster(text: str, place: str, tmp_path: Path) -> None:
    """Afterwards it cannot be renamed. `put_context` refuses the same ones."""
    file, environment = tmp_path / "config", {"KUBECONFIG": str(tmp_path / "config")}
    if text:
        file.write_text(text)
    for ask in (lambda: check_name("lab", environment), lambda: put_context(other(ADMIN), "lab", environment)):
        if place:
            with pytest.raises(UsageError, match=f"the kubeconfig has {place} that Longboat did not make"):
                ask()
            assert file.read_text() == text
        else:
            ask()


@pytest.mark.parametrize("data", [b"\xff\xfe", b"a: [", b"[]"])
def test_a_kubeconfig_that_cannot_be_read_is_told_before_too(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(data)
    with pytest.raises(KubeconfigError, match=f"^{tmp_path}/config: "):
        check_name("lab", {"KUBECONFIG": str(tmp_path / "config")})
