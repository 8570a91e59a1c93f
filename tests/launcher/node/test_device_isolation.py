"""Hidden devices, on devices that every machine has: /dev/full is hidden, /dev/zero is not."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longboat.launcher.node import libc
from tests.launcher.nodes import LAUNCHER, Node

NOBODY = 65534
CAP_SYS_ADMIN, PR_CAPBSET_DROP = 21, 24
is_root = os.geteuid() == 0
LOOK = """
import os, sys
for path in ("/dev/full", "/dev/zero"):
    try:
        os.close(os.open(path, os.O_RDWR))
        print(path, "opened")
    except OSError as error:
        print(path, error.strerror)
print(os.getuid(), os.getgid(), os.getcwd(), os.stat("/dev/full").st_rdev == os.makedev(1, 7))
"""


def python_of(options: dict[str, Any]) -> str:
    """One that this user may run: that of the tests may be in a folder of root's."""
    for python in (sys.executable, "/usr/bin/python3"):
        with contextlib.suppress(OSError):
            if subprocess.run([python, "-c", ""], check=False, **options).returncode == 0:
                return python
    pytest.skip("another user has no Python here")


def isolated(mode: str, devices: str, code: str = LOOK, **options: Any) -> subprocess.CompletedProcess[str]:
    who = {name: value for name, value in options.items() if name in ("user", "group", "extra_groups")}
    python = python_of(who)
    command = [*launcher(python), mode, devices, python, "-I", "-S", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def launcher(python: str) -> list[str]:
    return [python, "-I", "-S", str(LAUNCHER), "--isolated"]


@pytest.fixture(params=["root", "user"])
def who(request: pytest.FixtureRequest) -> dict[str, Any]:
    """As root, and as a user without any privilege."""
    if request.param == "root":
        return {} if is_root else pytest.skip("needs root")
    options: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if is_root else {}
    return options if has_user_namespaces(**options) else pytest.skip("users may make no user namespaces here")


def has_user_namespaces(**options: Any) -> bool:
    return subprocess.run(["unshare", "--user", "--mount", "true"], capture_output=True, **options).returncode == 0


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """That every user may enter."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def test_a_hidden_device_cannot_be_opened_and_all_else_is_as_before(who: dict[str, Any], open_folder: Path) -> None:
    done = isolated("required", "/dev/full", cwd=open_folder, **who)
    assert not done.stderr
    user, group = who.get("user", os.getuid()), who.get("group", os.getgid())
    assert done.stdout.splitlines() == [
        "/dev/full Permission denied",
        "/dev/zero opened",
        f"{user} {group} {open_folder.resolve()} True",
    ]
    os.close(os.open("/dev/full", os.O_RDWR))  # here nothing has changed


def test_a_command_in_it_can_hide_more_and_uncover_nothing(who: dict[str, Any]) -> None:
    """A run in a run; and, of a user, a namespace of his own in which he may mount."""
    python = python_of(who)
    argv = [*launcher(python), "required", "/dev/full,/dev/zero", python, "-I", "-S", "-c", LOOK]
    lines = isolated("required", "/dev/full", f"import os; os.execv({python!r}, {argv!r})", **who).stdout.splitlines()
    assert lines[:2] == ["/dev/full Permission denied", "/dev/zero Permission denied"]
    if who or not is_root:
        tries = ("umount /dev/full", "mount -o remount,bind,dev /dev/full", "mount --bind /dev /mnt")
        for command in tries:
            code = f"import os; os.execvp('unshare', ['unshare', '-Urm', 'sh', '-c', {command!r}])"
            assert isolated("required", "/dev/full", code, **who).returncode, command


def test_a_device_that_is_gone_needs_no_hiding(who: dict[str, Any]) -> None:
    lines = isolated("required", "/dev/nvidia-none,/dev/full", **who).stdout.splitlines()
    assert lines[:2] == ["/dev/full Permission denied", "/dev/zero opened"]


UNMOUNTABLE = "/proc/self/fd/0"
"""A pipe: no file system has it, so nothing can be mounted over it. So it is where user namespaces give no rights."""


def test_where_it_cannot_be_done_the_command_is_outside_or_not_run(who: dict[str, Any]) -> None:
    space = "import os; print(os.readlink('/proc/self/ns/user'))"
    done = isolated("required", UNMOUNTABLE, space, stdin=subprocess.PIPE, **who)
    assert (done.returncode, done.stdout) == (209, "")
    assert done.stderr.startswith("mount: ")
    done = isolated("auto", UNMOUNTABLE, space, stdin=subprocess.PIPE, **who)
    assert done.stdout.strip() == os.readlink("/proc/self/ns/user")


@pytest.mark.skipif(not is_root, reason="needs root")
def test_root_of_a_container_stays_in_its_user_namespace() -> None:
    """Without CAP_SYS_ADMIN; a user namespace would take its rights over the files of others."""

    def drop() -> None:
        libc.call("prctl", PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0)

    done = isolated("required", "/dev/full", preexec_fn=drop)
    assert (done.returncode, done.stderr) == (209, "unshare: Operation not permitted\n")
    assert isolated("auto", "/dev/full", preexec_fn=drop).stdout.startswith("/dev/full opened")


def test_arguments_that_mean_nothing_are_refused() -> None:
    done = isolated("perhaps", "/dev/full")
    assert done.returncode == 201 and done.stderr.startswith("usage: ")


def test_setup_and_ranks_of_a_node_cannot_open_it(tmp_path: Path) -> None:
    if not is_root and not has_user_namespaces():
        pytest.skip("users may make no user namespaces here")
    command = "cat < /dev/full"
    node = Node(tmp_path, command, hidden_devices=["/dev/full"], must_hide=True, setup=f"{command} || echo denied")
    assert node.run() == node.report(0)["exit_code"] != 0
    assert b"denied" in node.log("setup.out")
    assert b"/dev/full" in node.log("0.err")


@pytest.mark.parametrize("must_hide", [False, True])
def test_a_node_whose_devices_cannot_be_hidden(tmp_path: Path, must_hide: bool) -> None:
    node = Node(tmp_path, "echo ran", hidden_devices=["/proc/self/ns/mnt"], must_hide=must_hide)
    code = node.run()
    if must_hide:
        assert (code, node.outcome["cause"]) == (209, "setup")
        assert "cannot be hidden: " in node.outcome["message"]
    else:
        assert (code, node.log("0.out")) == (0, b"ran\n")


def test_a_call_that_fails_says_why() -> None:
    with pytest.raises(OSError, match="setns: Bad file descriptor"):
        libc.call("setns", -1, 0)
    with pytest.raises(OSError, match="no_such_function: Function not implemented"):
        libc.call("no_such_function")
