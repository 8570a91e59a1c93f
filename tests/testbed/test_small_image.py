"""What is cut out of the image with Python, and that what is left runs."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from testbed import images, small_image
from testbed.binaries import Binaries

LARGEST = 64 << 20
"""Of the layer, before it is packed: a third of the image that it is cut from."""


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("usr/bin/python3.11", True),
        ("usr/bin/sh", True),
        ("usr/bin/perl5.36", False),
        ("usr/bin/shuf", False),
        ("usr/lib/python3.11/json/decoder.py", True),
        ("usr/lib/python3.11/lib-dynload/_json.cpython-311-x86_64-linux-gnu.so", True),
        ("usr/lib/python3.11/__pycache__/os.cpython-311.pyc", False),
        ("usr/lib/python3.11/idlelib/run.py", False),
        ("usr/lib/x86_64-linux-gnu/libc.so.6", True),
        ("usr/lib/x86_64-linux-gnu/libcrypto.so.3", False),
        ("usr/lib/x86_64-linux-gnu/perl-base/B.pm", False),
        ("usr/lib64/ld-linux-x86-64.so.2", True),
        ("etc/passwd", True),
        ("etc/shadow", False),
        ("var/lib/dpkg/status", False),
    ],
)
def test_what_is_kept(path: str, kept: bool) -> None:
    assert small_image.is_kept(path) is kept


@pytest.mark.pods
@pytest.mark.usefixtures("needs_pods")
def test_python_and_the_shell_run_in_it(tmp_path: Path) -> None:
    small_image.fill_layer(tmp_path / "layer.tar", Binaries())
    assert (tmp_path / "layer.tar").stat().st_size < LARGEST
    with tarfile.open(tmp_path / "layer.tar") as layer:
        layer.extractall(tmp_path / "root", filter="tar")
    imports = "import ctypes, fcntl, json, select, signal, socket, subprocess, tarfile, threading, urllib.request, zlib"
    line = f"sh -c 'python3 -c \"{imports}; print(6 * 7)\" && ls -d /usr && id -u'"
    done = subprocess.run(
        ["chroot", tmp_path / "root", "/bin/sh", "-c", line],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": images.PATH},
    )
    assert (done.returncode, done.stdout) == (0, "42\n/usr\n0\n"), done.stderr
