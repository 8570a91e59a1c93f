"""Paths that the user may not reach, or that no file system takes: one line that names them, no internal error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from longboat.cli.main import cli
from tests.cli.conftest import Done, Longboat

WITHOUT_RIGHTS = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
"""Root may read everything; without these capabilities it is as anybody else."""


def ask(longboat: Longboat, *args: str) -> Done:
    command = [*WITHOUT_RIGHTS, sys.executable, "-m", "longboat", *args]
    done = subprocess.run(
        command, cwd=longboat.folder, env=longboat.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def locked(longboat: Longboat, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder beside the project that may not be entered."""
    folder = tmp_path_factory.mktemp("locked")
    (folder / "train.py").touch()
    folder.chmod(0o000)
    return str(folder)


@pytest.mark.parametrize(
    "args",
    [
        ("run", "{}/train.py"),
        ("check", "{}/train.py"),
        ("run", "--workdir", "{}/sub", "train.py"),
        ("run", "--workdir", "{}/sub", "--", "true"),
        ("run", "--resume", "{}/step-1", "train.py"),
        ("cp", "{}/train.py", "x:train.py"),
        ("data", "ls", "{}/volume"),
        ("ui", "--tls-cert", "{}/cert.pem"),
        ("ui", "--tls-key", "{}/key.pem"),
    ],
)
def test_a_path_behind_a_closed_folder(longboat: Longboat, locked: str, args: tuple[str, ...]) -> None:
    done = ask(longboat, *(word.format(locked) for word in args))
    assert done.code == 205 and done.err.startswith(f"error: cannot use {locked}/"), done
    assert "Permission denied" in done.err and "[Errno" not in done.err and not (longboat.folder / "crashes").exists()


def test_a_program_behind_a_closed_folder(longboat: Longboat, locked: str) -> None:
    """As a shell says it: 126, and not that there is none."""
    done = ask(longboat, "run", "--", f"{locked}/program")
    assert done.code == 126 and f"{locked}/program: Permission denied" in done.err


def test_a_certificate_that_is_not_there(longboat: Longboat) -> None:
    for path, reason in (("none.pem", "No such file or directory"), (".", "Is a directory")):
        done = longboat("ui", "--tls-cert", path, code=201)
        assert done.err.startswith(f"error: --tls-cert: {path}: {reason}\nhint: "), done


def test_a_file_of_a_folder_that_may_not_be_read_is_named(longboat: Longboat) -> None:
    """Of many files nobody knew which one it was."""
    longboat("run", "-q", "-n", "first", "--", "true")
    (longboat.folder / "data" / "inner").mkdir(parents=True)
    for name in ("a", "inner/b", "inner/c"):
        (longboat.folder / "data" / name).write_text(name)
    (longboat.folder / "data" / "inner" / "b").chmod(0o000)
    done = ask(longboat, "cp", "data", "first:copied")
    assert done.code == 205 and "data/inner/b may not be read" in done.err, done
    (longboat.folder / "data" / "inner" / "b").chmod(0o600)
    assert ask(longboat, "cp", "data", "first:copied").code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user, which root alone may do")
def test_a_home_in_which_another_user_has_a_run(longboat: Longboat) -> None:
    queue = Path(longboat.environment["LONGBOAT_HOME"]) / "queue"
    longboat("run", "-q", "-n", "first", "--", "true")
    (queue / "other.lock").touch(0o600)
    os.chown(queue / "other.lock", 65534, 65534)
    done = ask(longboat, "run", "-n", "second", "--", "true")
    assert done.code == 209 and "other.lock: it belongs to another user (uid 65534)" in done.err, done
    (queue / "other.lock").unlink()
    explained = longboat("explain", "second").out
    assert "stop the runs that the other user has in this home" in explained, explained


@pytest.mark.parametrize("mask", ["777", "277", "0"])
def test_an_odd_umask_leaves_nothing_that_its_owner_may_not_use(longboat: Longboat, mask: str) -> None:
    """Every later run failed at a file of the first."""
    line = f'umask {mask}; exec "$@"'
    command = [*WITHOUT_RIGHTS, "/bin/sh", "-c", line, "sh", sys.executable, "-m", "longboat", "run", "-q", "train.py"]
    for _ in range(2):
        done = subprocess.run(
            command, cwd=longboat.folder, env=longboat.environment, stdin=subprocess.DEVNULL, capture_output=True
        )
        assert (done.returncode, done.stdout) == (0, b"epoch 0\nepoch 1\n"), done
    home = Path(longboat.environment["LONGBOAT_HOME"])
    unusable = [path for path in home.rglob("*") if not path.is_symlink() and not path.stat().st_mode & 0o400]
    assert unusable == []


def test_a_home_that_is_no_folder(longboat: Longboat) -> None:
    home = longboat.environment["LONGBOAT_HOME"]
    longboat.environment["LONGBOAT_HOME"] = str(longboat.folder / "train.py")
    for args in (("ps",), ("run", "train.py")):
        done = longboat(*args, code=205)
        assert done.err == (
            f"error: {longboat.folder}/train.py is no folder\nhint: set LONGBOAT_HOME to a folder of your own\n"
        )
    longboat.environment["LONGBOAT_HOME"] = home


def test_a_name_that_no_file_system_takes(longboat: Longboat) -> None:
    for args in (("run", f"{'x' * 300}.py"), ("run", "--workdir", "x" * 300, "train.py"), ("run", "x" * 5000)):
        done = longboat(*args, code=205)
        assert done.err.startswith("error: cannot use ") and "xxx" in done.err and "name too long" in done.err
        assert len(done.err) < 500


def test_what_may_not_be_read_is_given_to_who_asked_for_it(longboat: Longboat) -> None:
    """click would refuse it: also an argument of the training's own, and a command after `--`."""
    secret = longboat.folder / "weights.bin"
    secret.touch()
    secret.chmod(0o200)
    (longboat.folder / ".longboatignore").write_text("weights.bin\n")
    (longboat.folder / "names.py").write_text("import sys\nprint(sys.argv[1])\n")
    done = ask(longboat, "run", "-q", "names.py", str(secret))
    assert (done.code, done.out) == (0, f"{secret}\n"), done
    assert ask(longboat, "run", "-q", "--", "test", "-e", str(secret)).code == 0
    done = ask(longboat, "run", "weights.bin")
    assert done.code == 201 and "is neither a Python or shell script" in done.err


def commands(group: click.Group, ctx: click.Context) -> list[click.Command]:
    listed: list[click.Command] = []
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        listed += commands(command, ctx) if isinstance(command, click.Group) else [command]
    return listed


def test_no_command_lets_click_read_its_paths() -> None:
    """Its words for a path that may not be read name the metavar of every argument, and no way out."""
    with cli.make_context("longboat", ["ps"]) as ctx:
        listed = commands(cli, ctx)
    assert len(listed) > 60
    paths = [(each.name, param.name) for each in listed for param in each.params if is_checked(param)]
    assert paths == []


def is_checked(param: click.Parameter) -> bool:
    return isinstance(param.type, click.Path) and param.type.readable and not param.type.exists
