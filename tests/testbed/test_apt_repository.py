"""The repository is signed as apt wants it, and lists what is in it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed import apt_repository, file_server, images, kubeadm, packages, requirements
from testbed.apt_repository import Repository
from testbed.errors import TestbedError
from testbed.file_server import Fault
from testbed.hosts import Group
from testbed.packages import Package

needs_gpg = pytest.mark.skipif(apt_repository.missing() is not None, reason=str(apt_repository.missing()))


def is_good(folder: Path, scratch: Path) -> bool:
    """As apt looks at it: the key is the only one it knows."""
    ring = scratch / "ring.gpg"
    gpg = ["gpg", "--homedir", str(scratch), "--batch", "--yes", "--dearmor", "-o", str(ring)]
    subprocess.run([*gpg, str(folder / "Release.key")], check=True, capture_output=True)
    checked = ["gpgv", "--keyring", str(ring), str(folder / "InRelease")]
    return subprocess.run(checked, capture_output=True, check=False).returncode == 0


def test_addresses_are_those_of_the_real_ones() -> None:
    repository = Repository(Path("/nowhere"), "http://10.1.255.1:8000", Path("/nowhere"))
    assert repository.kubernetes_url("1.36.4") == "http://10.1.255.1:8000/core:/stable:/v1.36/deb"
    assert repository.images_url("1.36.4") == "http://10.1.255.1:8000/images/v1.36.4.tar"
    assert repository.programs_url("1.36.4").endswith(f"/release/v1.36.4/bin/linux/{images.architecture()}")


def test_requests_are_read_from_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        '10.1.0.10 - - [16/Nov/2026 05:41:12] "GET /distribution/InRelease HTTP/1.1" 200 -\n'
        "10.1.0.10 - - [16/Nov/2026 05:41:12] code 404, message Not Found\n"
        '10.1.0.10 - - [16/Nov/2026 05:41:13] "GET /nothing HTTP/1.1" 404 -\n'
    )
    assert Repository(tmp_path, "", log).requests() == ["GET /distribution/InRelease 200", "GET /nothing 404"]


def test_faults_add_up_until_all_is_restored(tmp_path: Path) -> None:
    repository = Repository(tmp_path, "", tmp_path / "log")
    repository.hang("*/Packages")
    repository.refuse(500)
    assert file_server.read_faults(tmp_path) == [Fault("*/Packages", hangs=True), Fault(status=500)]
    repository.restore()
    assert file_server.read_faults(tmp_path) == []


@needs_gpg
def test_signature_is_that_of_the_key_until_another_one_signs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGBOAT_TESTBED_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "public" / "distribution"
    hello = Package("hello", "1.0-1", (), {}, {"etc/hello": "text"})
    with apt_repository.signing_key() as home:
        apt_repository.write_index(folder, [hello], home)
    assert not home.exists()
    index = (folder / "Packages").read_text()
    file = f"{images.architecture()}/{hello.file}"
    assert f"Filename: {file}\nSize: {(folder / file).stat().st_size}\n" in index
    assert f"SHA256: {images.digest_of(packages.cached_path(hello))}\n" in index
    assert is_good(folder, tmp_path)
    repository = Repository(tmp_path, "", tmp_path / "log")
    repository.sign_with_another_key()
    assert not is_good(folder, tmp_path)
    repository.restore()
    assert is_good(folder, tmp_path)


@pytest.mark.hosts
def test_apt_refuses_what_is_not_what_was_signed(hosts: Callable[..., Group], state: Path) -> None:
    lacks = requirements.missing_programs(kubeadm.TARGETS) or apt_repository.missing()
    if lacks:
        pytest.skip(lacks)
    group = hosts(1, "no-route", "sudo-password")
    (host,) = group.hosts
    repository = apt_repository.serve(group)
    repository.use(host)
    assert host.run("cat /etc/apt/keyrings/distribution.asc") == repository.key.read_text()
    repository.sign_with_another_key()
    with pytest.raises(TestbedError, match="NO_PUBKEY|is not signed"):
        host.run("apt-get -q update", user="root")
    repository.restore()
    host.run("apt-get -q update", user="root")
    repository.spoil("*/runc_*.deb")
    with pytest.raises(TestbedError, match="Hash Sum mismatch"):
        host.run("apt-get -q -y install runc", user="root")
    repository.restore()
    assert "Setting up runc" in host.run("apt-get -q -y install runc", user="root")
    assert any(line.startswith(f"GET /distribution/{images.architecture()}/runc_") for line in repository.requests())
