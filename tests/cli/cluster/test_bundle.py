"""`longboat cluster bundle` and `up --from`, as they are typed: mistakes are told before a host is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from longboat.cli.main import enter
from tests.clusters.offline.bundles import CONTENTS, write_archive


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    # A port on which nobody listens: who connects would say so.
    (tmp_path / "cluster.yaml").write_text("name: lab\nhosts: [root@127.0.0.1:9]\n")
    return tmp_path


def test_a_bad_bundle_is_one_message_before_a_host_is_asked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_archive(folder / "lab.tar")
    data = (folder / "lab.tar").read_bytes()
    (folder / "short.tar").write_bytes(data[: len(data) // 2])
    (folder / "wrong.tar").write_bytes(data.replace(CONTENTS["packages/Packages"], b"INDEX"))
    write_archive(folder / "old.tar", kubernetes="1.35.8")
    for name, code, message in (
        ("short.tar", 204, "short.tar: it is cut off"),
        ("wrong.tar", 204, "packages/Packages is damaged"),
        ("old.tar", 203, "it has Kubernetes 1.35.8, the cluster file asks for 1.36.4"),
        ("none.tar", 201, "no such file"),
        ("http://127.0.0.1:9/x", 201, "could be anybody's"),
    ):
        assert enter(["cluster", "up", "--from", name]) == code, name
        output = capsys.readouterr().err
        assert message in output and "hint:" in output and "127.0.0.1:9: " not in output, output


def test_what_is_there_is_not_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "lab.tar").write_text("mine")
    assert enter(["cluster", "bundle", "-o", "lab.tar"]) == 201
    assert "lab.tar exists already" in capsys.readouterr().err
    assert enter(["cluster", "bundle", "-o", "nowhere/lab.tar"]) == 201
    (folder / "cluster.yaml").write_text("name: lab\nkind: existing\n")
    assert enter(["cluster", "bundle", "-o", "new.tar"]) == 201
    assert enter(["cluster", "up", "--from", "lab.tar"]) == 201


def test_a_bundle_again_with_force(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_archive(folder / "lab.tar")
    (folder / "cluster.yaml").write_text("name: lab\nhosts: [a]\nsource: lab.tar\n")
    assert enter(["cluster", "bundle", "-o", "lab.tar", "--force"]) == 0
    assert "Kubernetes 1.36.4 for debian 12 on amd64, 1 package, 5 images" in capsys.readouterr().err
