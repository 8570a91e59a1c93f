"""The archive is small enough, whole, and starts a cluster in a root file system that has nothing but Python in it."""

from __future__ import annotations

import contextlib
import io
import json
import lzma
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed import addresses, binaries, build, cgroups, images, pack, processes, settings
from testbed.binaries import Binaries, Target
from testbed.build import Progress
from testbed.pack import Entry

UNPACK = f"import tarfile; tarfile.open('{pack.DEFAULT_FILE}').extractall()"
REMOVED = ("apt", "apt-get", "apt-config", "apt-cache", "dpkg", "ip", "xz", "nft", "iptables")
# A root of its own, as a machine has it: not chroot, because containers cannot be started in one.
ENTER = """
set -e
mount --rbind /sys sys
mount --rbind /dev dev
mount -t proc proc proc
mkdir -p old
pivot_root . old
umount -l old
rmdir old
exec sleep 100000
"""


@dataclass(frozen=True)
class Bare:
    """A machine of its own, as far as processes can tell: its first process and its files."""

    pid: int
    root: Path

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        inside = ["nsenter", "-t", str(self.pid), "-m", "-p", "-n", "-i", "--"]
        environment = {"PATH": images.PATH, "HOME": "/root"}
        return subprocess.run([*inside, *command], capture_output=True, text=True, check=False, env=environment)

    def start(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("python3", f"/root/{pack.TOP}/start", *arguments)

    def commands(self) -> list[str]:
        """Of all processes; those that only wait to be collected have none, and nobody collects them here."""
        shown = self.run("sh", "-c", "cd /proc && for pid in [0-9]*; do echo $(cat $pid/cmdline | tr '\\0' ' '); done")
        return sorted(line for line in shown.stdout.splitlines() if line)

    def mounts(self) -> list[str]:
        return [line.split()[4] for line in Path(f"/proc/{self.pid}/mountinfo").read_text().splitlines()]

    def files(self) -> set[str]:
        shown = self.run("find", "/", "-xdev", "-not", "-path", f"/root/{pack.TOP}/*").stdout
        return set(shown.splitlines())

    def addresses(self) -> list[str]:
        return addresses.local_addresses(Path(f"/proc/{self.pid}/net/fib_trie").read_text())


@pytest.fixture
def unlimited() -> Iterator[None]:
    """The kernel has one such limit for all: a machine that is only pretended must not set it back for the others."""
    settings.raise_limit()
    yield
    settings.restore_limit()


@pytest.fixture
def bare_root(tmp_path: Path) -> Iterator[Path]:
    """Files of a machine with Python and without what a cluster usually calls."""
    root = tmp_path / "root"
    root.mkdir()
    with tarfile.open(images.archive("python", Binaries())) as image:
        layer = max(image.getmembers(), key=lambda member: member.size)
        with subprocess.Popen(["tar", "-x", "-C", root], stdin=subprocess.PIPE) as unpacking:
            assert unpacking.stdin
            shutil.copyfileobj(image.extractfile(layer) or io.BytesIO(), unpacking.stdin)
    for name in REMOVED:
        for folder in ("bin", "sbin"):
            (root / "usr" / folder / name).unlink(missing_ok=True)
    yield root
    shutil.rmtree(tmp_path, ignore_errors=True)


@contextlib.contextmanager
def booted(root: Path, tmp_path: Path, *, layered: bool) -> Iterator[Bare]:
    """Namespaces whose root these files are: as they lie on the disk, or as a layer of an overlay."""
    top = tmp_path / "top"
    for folder in (top, tmp_path / "upper", tmp_path / "work"):
        folder.mkdir()
    options = f"lowerdir={root},upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    how = f"mount -t overlay -o {options} overlay {top}" if layered else f"mount --bind {root} {top}"
    kinds = ["--mount", "--pid", "--net", "--ipc", "--fork", "--kill-child", "--propagation", "private"]
    script = f"{how} && cd {top} && {ENTER}"
    # In the old root /proc is still that of the machine, and the first process is known by what it became.
    child = subprocess.Popen(["unshare", *kinds, "sh", "-c", script], stderr=subprocess.PIPE, text=True)
    try:
        found: list[int] = []

        def is_there() -> bool:
            found[:] = [pid for pid in processes.children(child.pid) if comm(pid) == "sleep"]
            return bool(found) or child.poll() is not None

        processes.wait_until(is_there, 30.0)
        assert found, child.stderr and child.stderr.read()
        yield Bare(found[0], root)
    finally:
        child.kill()
        child.wait()


def comm(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def gpus_of(bare: Bare) -> str:
    shown = bare.start("kubectl", "--", "get", "node", "node-0", "-o", "json")
    status = json.loads(shown.stdout)["status"]
    assert [one["status"] for one in status["conditions"] if one["type"] == "Ready"] == ["True"]
    return str(status["allocatable"].get("nvidia.com/gpu"))


@pytest.mark.pods
@pytest.mark.slow
@pytest.mark.usefixtures("needs_pods", "unlimited")
@pytest.mark.parametrize("layered", [False, True], ids=["disk", "overlay"])
def test_a_bare_machine_gets_a_cluster_and_loses_it_again(bare_root: Path, tmp_path: Path, layered: bool) -> None:
    archive = bare_root / "root" / pack.DEFAULT_FILE
    assert pack.pack(archive) == archive.stat().st_size <= 60 << 20
    with booted(bare_root, tmp_path, layered=layered) as bare:
        assert bare.run("sh", "-c", "command -v ip apt-get dpkg xz").stdout == ""
        unpacked = bare.run("sh", "-c", f'cd /root && python3 -c "{UNPACK}"')
        assert unpacked.returncode == 0, unpacked.stderr
        before, files = (bare.mounts(), bare.commands(), bare.addresses()), bare.files()
        assert bare.addresses() == [], "it has no network but its own loopback"

        up = bare.start("up", "--gpus", "2")
        assert up.returncode == 0, up.stderr
        assert bare.start("kubeconfig").stdout == up.stdout
        assert "\tready\t" in bare.start("status").stdout
        identity = json.loads(bare.run("cat", str(Path(up.stdout).parent / "cluster.json")).stdout)["id"]
        configuration = bare.run("cat", str(Path(up.stdout).parent / "node-0/containerd.toml")).stdout
        assert f'snapshotter = "{"native" if layered else "overlayfs"}"' in configuration
        check_jobs(bare)
        check_gpus_come_back(bare)

        assert bare.start("down").returncode == 0
        assert bare.start("down").stderr == "machine: not there\n"
        assert (bare.mounts(), bare.commands(), bare.addresses()) == before
        assert bare.files() ^ files == set()
        assert identity not in cgroups.present()


def check_jobs(bare: Bare) -> None:
    done = bare.start("run", "--", "python3", "-c", "import os, sys; print(os.getcwd(), 6 * 7); sys.exit(7)")
    assert (done.returncode, done.stdout) == (7, "/tmp 42\n"), done.stderr
    mounted = bare.start("run", "--gpus", "2", "--mount", "/srv", "--", "sh", "-c", "echo kept > /srv/file")
    assert mounted.returncode == 0, mounted.stderr
    assert bare.run("cat", "/srv/file").stdout == "kept\n"
    bare.run("rm", "/srv/file")
    refused = bare.start("run", "--gpus", "3", "--", "true")
    assert refused.returncode == 1 and "3 GPUs were asked for and the machine shows 2" in refused.stderr


def check_gpus_come_back(bare: Bare) -> None:
    assert gpus_of(bare) == "2"
    drop = [{"op": "remove", "path": f"/status/{part}/nvidia.com~1gpu"} for part in ("capacity", "allocatable")]
    patch = ["patch", "node", "node-0", "--subresource=status", "--type=json", "-p", json.dumps(drop)]
    assert bare.start("kubectl", "--", *patch).returncode == 0
    assert processes.wait_until(lambda: gpus_of(bare) == "2", 30.0)


def test_two_streams_are_one_archive(tmp_path: Path) -> None:
    (tmp_path / "program").write_bytes(b"x" * 1000)
    entries = [Entry("bin/program", tmp_path / "program"), Entry("bin/other", link="program")]
    made = []
    for _ in range(2):
        first = io.BytesIO()
        pack.write_entries(first, entries)
        made.append(lzma.compress(first.getvalue()) + lzma.compress(pack.module_stream()))
    assert made[0] == made[1]
    with tarfile.open(fileobj=io.BytesIO(made[0]), mode="r:xz") as tar:
        names = tar.getnames()
        assert names[:2] == ["longboat-cluster/bin/program", "longboat-cluster/bin/other"]
        assert {"longboat-cluster/testbed/packed.py", "longboat-cluster/start"} <= set(names)
        assert tar.getmember("longboat-cluster/start").mode == 0o755
        assert all((member.mtime, member.uid, member.uname) == (0, 0, "") for member in tar.getmembers())
        program = tar.extractfile("longboat-cluster/bin/other")
        assert program and program.read() == b"x" * 1000


def test_what_is_packed_once_is_known_by_its_content(tmp_path: Path) -> None:
    file = tmp_path / "program"
    file.write_bytes(b"one")
    first = pack.key_of([Entry("bin/program", file)])
    assert first == pack.key_of([Entry("bin/program", file)])
    file.write_bytes(b"two")
    assert first != pack.key_of([Entry("bin/program", file)])


def test_kubernetes_is_one_program_wherever_it_came_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGBOAT_TESTBED_CACHE", str(tmp_path / "cache"))
    (tmp_path / "kubernetes").touch()
    links = {name: tmp_path / name for name in binaries.KUBERNETES_COMMANDS}
    for link in links.values():
        link.symlink_to("kubernetes")
    assert pack.seven_in_one(Binaries(links)) == (tmp_path / "kubernetes").resolve()

    links["kubelet"].unlink()
    links["kubelet"].write_text("an official one")
    built = []

    def compile_target(target: Target, folder: Path, progress: Progress) -> None:
        built.append(target.name)
        (folder / "kubernetes").write_text("built")

    monkeypatch.setattr(build, "compile_target", compile_target)
    found = {pack.seven_in_one(Binaries(links)) for _ in range(2)}
    assert [file.read_text() for file in found] == ["built"] and built == ["kubernetes"]
