"""`longboat ssh-config` with a real ssh and a real sshd: that of the test hosts, on this machine and in a pod."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from testbed import rootfs
from testbed.clusters import Cluster
from tests.conformance.clusters import open_cluster

SCRIPT = r"""
set -eu
mount -t tmpfs tmpfs /run
mount --bind "$WORK/passwd" /etc/passwd
mount --bind "$WORK/sbin" /usr/local/sbin
cd "$WORK/project"
longboat shell -d --idle 60s
longboat ssh-config shell > "$WORK/config"
set +e
ssh -F "$WORK/config" longboat-shell 'echo in $LONGBOAT_RUN; cat > came; exit 4' < "$WORK/sent"
echo "exit code $?"
scp -q -F "$WORK/config" "longboat-shell:$WORK/project/came" "$WORK/back"
longboat stop shell
longboat rm shell
"""


@pytest.mark.hosts
def test_ssh_and_scp_reach_an_open_shell(home: Path, tmp_path: Path) -> None:
    root = rootfs.path()
    if os.getuid() != 0 or not root.is_dir() or not shutil.which("ssh"):
        pytest.skip("needs root, ssh, and the root folder of the test hosts")
    (tmp_path / "project").mkdir()
    (tmp_path / "sbin").mkdir()
    (tmp_path / "lib").mkdir()
    for library in root.glob("usr/lib/*-linux-gnu/libwrap.so.0*"):  # which this machine may not have
        shutil.copy(library, tmp_path / "lib")
    sshd = tmp_path / "sbin" / "sshd"
    sshd.write_text(f'#!/bin/sh\nexec env LD_LIBRARY_PATH={tmp_path / "lib"} {root}/usr/sbin/sshd "$@"\n')
    sshd.chmod(0o755)
    lines = [line for line in Path("/etc/passwd").read_text().splitlines() if not line.startswith(("root:", "sshd:"))]
    lines += [f"root:x:0:0:root:{tmp_path / 'project'}:/bin/sh", "sshd:x:100:65534::/run/sshd:/usr/sbin/nologin"]
    (tmp_path / "passwd").write_text("\n".join(lines) + "\n")
    sent = os.urandom(3_000_000)
    (tmp_path / "sent").write_bytes(sent)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", SCRIPT],
        env={**os.environ, "WORK": str(tmp_path), "PATH": path, "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stdout.splitlines() == ["shell", "in shell", "exit code 4", "shell", "shell"], done.stderr
    assert (tmp_path / "project" / "came").read_bytes() == (tmp_path / "back").read_bytes() == sent
    assert not list(home.rglob("*workbench*"))


@pytest.mark.hosts
@pytest.mark.pods
def test_ssh_reaches_a_pod_through_the_api_server(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    root = rootfs.path()
    if not root.is_dir() or not shutil.which("ssh"):
        pytest.skip("needs ssh, and the root folder of the test hosts")
    programs, project = tmp_path / "programs", tmp_path / "project"
    programs.mkdir()
    project.mkdir()
    (libraries,) = root.glob("usr/lib/*-linux-gnu")
    for name, path in (("sshd", "usr/sbin/sshd"), ("ssh-keygen", "usr/bin/ssh-keygen")):
        (programs / name).write_text(f'#!/bin/sh\nexec env LD_LIBRARY_PATH={libraries} {root}/{path} "$@"\n')
        (programs / name).chmod(0o755)
    account = "echo sshd:x:100:65534::/run/sshd:/usr/sbin/nologin >> /etc/passwd"
    setup = f"{account}; cp {programs}/* /usr/local/sbin/"
    mounts = [f"--volume={folder}={folder}:ro" for folder in (programs, root)]
    with open_cluster(tmp_path, cluster, namespace, "kubernetes") as place:

        def typed(*words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
            environment = {**place.environment, "HOME": str(tmp_path)}
            return subprocess.run(words, cwd=project, env=environment, input=stdin, capture_output=True, timeout=240)

        longboat, where = str(Path(sys.executable).parent / "longboat"), ("--namespace", namespace)
        opened = typed(longboat, "shell", "-d", "--idle", "120s", "--setup", setup, *mounts, *where)
        assert (opened.returncode, opened.stdout) == (0, b"shell\n"), opened.stderr
        entry = typed(longboat, "ssh-config", "shell", *where)
        assert entry.returncode == 0, entry.stderr
        (tmp_path / "config").write_bytes(entry.stdout)
        sent = os.urandom(1_000_000)
        done = typed(
            "ssh",
            "-F",
            str(tmp_path / "config"),
            "longboat-shell",
            "echo in $LONGBOAT_RUN >&2; cat; exit 4",
            stdin=sent,
        )
        assert (done.returncode, done.stdout, done.stderr) == (4, sent, b"in shell\n")
        assert typed(longboat, "rm", "--force", "--yes", "shell", *where).returncode == 0
        assert place.traces("shell", "") == []
