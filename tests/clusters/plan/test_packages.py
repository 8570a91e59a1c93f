"""Packages and their repositories: what is written for apt and dnf, and which versions count as installed."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest

from longboat.clusters.plan.journal_shell import JOURNAL, PRELUDE
from longboat.clusters.plan.packages import (
    default_repositories,
    is_version,
    list_name,
    packages,
    repositories,
    repository,
)
from longboat.clusters.plan.steps import Kept, Step
from longboat.clusters.spec import PackageRepository, SoftwareSource, VolumeStorage
from longboat.core.errors import InternalError
from tests.clusters.worlds import KEYS, bare, cluster


def written(step: Step | None) -> str:
    """What the script's base64 words hold."""
    assert step is not None
    words = [word for line in step.script.splitlines() if line.startswith("put ") for word in line.split()[3:]]
    return b"".join(base64.b64decode(word) for word in words).decode()


def test_a_repository_is_signed_by_its_own_key_alone() -> None:
    spec = cluster()
    text = written(repository(spec, spec.hosts[0], bare("cp-0"), KEYS))
    assert "deb [signed-by=/etc/apt/keyrings/longboat-0.asc] https://mirror.test/deb/ /" in text


def test_the_projects_own_repositories() -> None:
    urls = [item.url for item in default_repositories(bare("x"), "1.36.4")]
    assert urls == ["https://pkgs.k8s.io/core:/stable:/v1.36/deb/", "https://download.docker.com/linux/debian"]
    rocky = bare("x", os_id="rocky", package_manager="dnf")
    assert default_repositories(rocky, "1.36.4")[0].url.endswith("/v1.36/rpm/")


def test_dnf_has_a_key_for_each_repository() -> None:
    spec = cluster()
    rocky = bare("cp-0", os_id="rocky", package_manager="dnf")
    text = written(repository(spec, spec.hosts[0], rocky, KEYS))
    assert "gpgcheck=1\ngpgkey=file:///etc/pki/rpm-gpg/longboat-0\n" in text


def test_packages_of_a_bundle_come_through_stdin_and_no_repository_is_asked() -> None:
    spec = cluster(source=SoftwareSource(kind="files", location="/lab.tar"))
    step = packages(spec, spec.hosts[0], bare("cp-0"))
    assert isinstance(step, Step) and step.kind == "packages" and "from /lab.tar" in step.title
    assert "sha256sum --quiet --strict -c SHA256SUMS" in step.script and "longboat.list" not in step.script
    assert subprocess.run(["sh", "-n"], input=PRELUDE + step.script, text=True, check=False).returncode == 0


def test_installed_packages_of_this_version_stay() -> None:
    spec = cluster(source=SoftwareSource())
    found = tuple((name, "1.36.4-1.1") for name in ("kubelet", "kubeadm", "kubectl"))
    assert isinstance(
        packages(spec, spec.hosts[0], bare("cp-0", packages=found, programs=(("containerd", "2.1.0"),))), Kept
    )


@pytest.mark.parametrize(
    ("installed", "is_same"),
    [("1.36.4-1.1", True), ("1.36.4", True), ("1.36.40-1.1", False), ("1.36.3-1.1", False), ("", False)],
)
def test_versions(installed: str, is_same: bool) -> None:
    assert is_version(installed, "1.36.4") is is_same


def test_apts_own_names_of_what_it_fetched() -> None:
    assert list_name("http://10.1.0.1:8080/core:/stable:/v1.36/deb/") == "10.1.0.1*8080_core*_stable*_v1.36_deb"
    with pytest.raises(InternalError):
        list_name("http://x/$(reboot)")


def test_an_address_names_the_minor_version_that_is_wanted() -> None:
    mine = PackageRepository(
        url="https://mirror.test/core:/stable:/{minor}/deb/", key="https://mirror.test/{minor}.key"
    )
    spec = cluster(source=SoftwareSource(repositories=(mine,)))
    wanted = repositories(spec, bare("cp-0"))[0]
    assert (wanted.url, wanted.key) == ("https://mirror.test/core:/stable:/v1.36/deb/", "https://mirror.test/v1.36.key")


@pytest.mark.parametrize(("manager", "name"), [("apt", "nfs-common"), ("dnf", "nfs-utils")])
def test_storage_on_a_server_needs_its_client_on_every_node(manager: str, name: str) -> None:
    storage = VolumeStorage(kind="nfs", server="nas", path="/export")
    spec = cluster(addons=("storage",), storage=storage)
    step = packages(spec, spec.hosts[0], bare("cp-0", package_manager=manager))
    assert isinstance(step, Step) and name in step.title
    present = bare("cp-0", package_manager=manager, packages=((name, "1:2.6"),))
    step = packages(spec, spec.hosts[0], present)
    assert isinstance(step, Step) and name not in step.title
    step = packages(cluster(storage=storage), spec.hosts[0], bare("cp-0", package_manager=manager))
    assert isinstance(step, Step) and name not in step.title


class DnfHost:
    """A folder in place of a host, with an rpm and a dnf that keep a list of names. kubeadm brings cri-tools along."""

    def __init__(self, root: Path) -> None:
        self.root, self.installed, self.needing = root, root / "installed", root / "needing"
        (root / "journal/undo").mkdir(parents=True)
        (root / "bin").mkdir()
        self.installed.write_text("bash\nconntrack-tools\n")
        self.needing.write_text("")
        (root / "more").write_text("")
        self._program(
            "rpm",
            f"""case "$1" in
-qa) cat {self.installed} ;;
-q) grep -qx "$2" {self.installed} ;;
-e) for name in $(cat {self.needing}); do
    echo "	$4 is needed by (installed) $name-1.0-1.noarch"; done >&2; [ ! -s {self.needing} ] ;;
esac""",
        )
        self._program(
            "dnf",
            f"""case "$*" in
*" --assumeno install "*) cat <<END
Dependencies resolved.
=====
 Package     Arch   Version   Repository   Size
=====
Installing:
 containerd.io   noarch   2.4.2   x   5 k
 kubeadm         noarch   1.36.4  x   5 k
 kubectl         noarch   1.36.4  x   5 k
 kubelet         noarch   1.36.4  x   5 k
Installing dependencies:
 cri-tools       noarch   1.36.0  x   5 k
$(cat {root}/more)
Transaction Summary
=====
Install  5 Packages
END
exit 1 ;;
*" install "*) printf '%s\\n' kubelet kubeadm kubectl cri-tools containerd.io >> {self.installed} ;;
*clean_requirements_on_remove=False*" remove "*)
    for name in $(sed -n 's/.* remove //p' <<END
$*
END
    ); do sed -i "/^$name\\$/d" {self.installed}; done ;;
esac""",
        )

    def _program(self, name: str, text: str) -> None:
        (self.root / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.root / "bin" / name).chmod(0o755)

    def run(self, script: str) -> str:
        """Its errors."""
        text = script.replace(JOURNAL, f"{self.root}/journal")
        text = text.replace(":$PATH\n", f":$PATH\nPATH={self.root}/bin:$PATH\n", 1)
        return subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False).stderr

    def names(self) -> list[str]:
        return sorted(self.installed.read_text().split())


def test_dnf_removes_what_it_brought_and_nobodys_else(tmp_path: Path) -> None:
    spec, host = cluster(), DnfHost(tmp_path)
    step = packages(spec, spec.hosts[0], bare("cp-0", os_id="rocky", package_manager="dnf"))
    assert isinstance(step, Step)
    assert host.run(PRELUDE + step.script) == ""
    (undo,) = (tmp_path / "journal/undo").glob("*-packages")
    script = f"PATH=:$PATH\nHERE={undo}; set -eu\n{(undo / 'run').read_text()}"
    host.needing.write_text("mytool")
    assert "need ours: mytool-1.0-1.noarch; remove them first" in host.run(script)
    assert "kubelet" in host.names() and "cri-tools" in host.names()
    host.needing.write_text("")
    assert host.run(script) == ""
    assert host.names() == ["bash", "conntrack-tools"]


@pytest.mark.parametrize("section", ["Downgrading", "Upgrading", "Removing dependent packages"])
def test_dnf_replaces_no_package_that_was_there(tmp_path: Path, section: str) -> None:
    """The way back could not restore it."""
    spec, host = cluster(), DnfHost(tmp_path)
    (tmp_path / "more").write_text(f"{section}:\n runc   x86_64   1.1   x   5 k\n")
    step = packages(spec, spec.hosts[0], bare("cp-0", os_id="rocky", package_manager="dnf"))
    assert isinstance(step, Step)
    assert host.run(PRELUDE + step.script) == "error: other versions are installed: runc\n"
    assert host.names() == ["bash", "conntrack-tools"]


def test_what_dnf_brings_is_in_the_journal_before_it_comes(tmp_path: Path) -> None:
    spec, host = cluster(), DnfHost(tmp_path)
    step = packages(spec, spec.hosts[0], bare("cp-0", os_id="rocky", package_manager="dnf"))
    assert isinstance(step, Step)
    before, install, _ = step.script.partition("\ndnf -q -y $flags install")
    assert install and host.run(PRELUDE + before) == ""
    (undo,) = (tmp_path / "journal/undo").glob("*-packages")
    recorded = (undo / "packages").read_text().split()
    assert recorded == ["containerd.io", "kubeadm", "kubectl", "kubelet", "cri-tools"]
