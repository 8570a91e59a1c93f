"""What `longboat run` is given, as a table: words in, fields of a job out."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from longboat.cli.commands.jobs.check import command as check_command
from longboat.cli.commands.jobs.run import command as run_command
from longboat.cli.input.targets import RunTarget, name_from, resolve
from longboat.core.errors import LongboatError, NotFound, UsageError

HOME = Path("/home/somebody")


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    (tmp_path / "train.py").touch()
    (tmp_path / "go.sh").touch()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "main.py").touch()
    (tmp_path / "sub" / "job.yaml").touch()
    program = tmp_path / "program"
    program.touch()
    program.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "name", "run"),
    [
        (["train.py"], "train", ["python", "train.py"]),
        (["./train.py"], "train", ["python", "train.py"]),
        (["train.py", "--epochs", "3", "a b"], "train", ["python", "train.py", "--epochs", "3", "a b"]),
        (["sub/main.py", "-n", "x"], "main", ["python", "sub/main.py", "-n", "x"]),
        (["go.sh"], "go", ["sh", "go.sh"]),
        (["program", "x"], "program", ["./program", "x"]),
    ],
)
def test_scripts(cwd: Path, words: list[str], name: str, run: list[str]) -> None:
    assert resolve(words, (), cwd=cwd, home=HOME) == RunTarget(fields={"name": name, "run": run})


@pytest.mark.parametrize(
    ("command", "name", "run"),
    [
        (["true"], "true", ["true"]),
        (["/usr/bin/env", "python3", "x.py"], "env", ["/usr/bin/env", "python3", "x.py"]),
        (["echo a | cat"], "echo", "echo a | cat"),
        (["echo", "a | cat"], "echo", ["echo", "a | cat"]),
    ],
)
def test_commands(cwd: Path, command: list[str], name: str, run: object) -> None:
    assert resolve((), command, cwd=cwd, home=HOME) == RunTarget(fields={"name": name, "run": run})


def test_two_dashes_after_a_script_are_the_scripts_and_it_is_said(cwd: Path) -> None:
    for workdir in (None, "."):
        target = resolve(("train.py", "--", "--lr", "3"), (), cwd=cwd, home=HOME, workdir=workdir)
        assert target.fields["run"] == ["python", "train.py", "--", "--lr", "3"]
        assert target.notices == ("-- is passed on to train.py: what follows a script is the script's without it",)
    assert resolve(["train.py", "--lr", "3", "--"], (), cwd=cwd, home=HOME).notices == ()


@pytest.mark.parametrize(
    ("name", "text", "run"),
    [
        ("a.sh", "echo\n", ["sh", "a.sh"]),  # a shell starts it, the kernel does not
        ("a.bash", "echo\n", ["bash", "a.bash"]),
        ("a.sh", "#!/bin/zsh\n", ["./a.sh"]),
        ("tool", "\x7fELF", ["./tool"]),
    ],
)
def test_an_executable_shell_script_without_an_interpreter(cwd: Path, name: str, text: str, run: list[str]) -> None:
    (cwd / name).write_text(text)
    (cwd / name).chmod(0o755)
    assert resolve((name,), (), cwd=cwd, home=HOME).fields["run"] == run


@pytest.mark.parametrize(
    ("text", "shell"),
    [
        ("#!/bin/bash\n", ["bash"]),
        ("#! /usr/bin/bash -eu\necho\n", ["bash", "-eu"]),
        ("#!/usr/bin/env zsh\n", ["zsh"]),
        ("#!/usr/bin/env -S bash -e\n", ["bash", "-e"]),
        ("#!/usr/bin/env python3\n", ["sh"]),
        ("#!", ["sh"]),
        ("#!/usr/bin/env", ["sh"]),
        ("echo #!/bin/bash\n", ["sh"]),
        ("\udcff", ["sh"]),
    ],
)
def test_a_shell_script_runs_in_the_shell_that_it_names(cwd: Path, text: str, shell: list[str]) -> None:
    """Executable or not: dash gives up at the first array of a script for bash."""
    (cwd / "go.sh").write_bytes(text.encode(errors="surrogateescape"))
    assert resolve(("go.sh", "x"), (), cwd=cwd, home=HOME).fields["run"] == [*shell, "go.sh", "x"]


@pytest.mark.parametrize("workdir", [None, "."])
@pytest.mark.parametrize("word", ["", "  ", "\t"])
def test_a_blank_word_is_nothing_to_run(cwd: Path, word: str, workdir: str | None) -> None:
    """A variable that is not set, in quotes."""
    with pytest.raises(UsageError, match="nothing to run"):
        resolve((word, "x"), (), cwd=cwd, home=HOME, workdir=workdir)


def test_a_program_that_is_not_here_still_goes_after_two_dashes(cwd: Path) -> None:
    with pytest.raises(UsageError, match="no-such-launcher is not a file here") as error:
        resolve(("no-such-launcher", "train.py"), (), cwd=cwd, home=HOME)
    assert error.value.hint == "longboat run -- no-such-launcher train.py"
    for words in (("no-such-launcher",), ("nowhere.py", "x"), ("train", "x")):
        with pytest.raises(NotFound, match="no such file"):
            resolve(words, (), cwd=cwd, home=HOME)


def test_a_device_is_no_script(cwd: Path) -> None:
    with pytest.raises(UsageError, match="/dev/null is a device or a pipe"):
        resolve(["/dev/null"], (), cwd=cwd, home=HOME)


@pytest.mark.parametrize(
    ("folder", "workdir", "script", "started"),
    [
        (".", "sub", "main.py", "main.py"),  # as seen from the folder
        (".", "sub", "sub/main.py", "main.py"),  # as seen from here
        ("sub", "..", "main.py", "sub/main.py"),
        ("sub", "..", "train.py", "train.py"),
        ("sub", "..", "../train.py", "train.py"),
        (".", ".", "train.py", "train.py"),
    ],
)
def test_a_script_beside_a_workdir(cwd: Path, folder: str, workdir: str, script: str, started: str) -> None:
    target = resolve([script, "x"], (), cwd=cwd / folder, home=HOME, workdir=workdir)
    assert target == RunTarget(fields={"name": Path(started).stem, "run": ["python", started, "x"]})
    full = resolve([str(cwd / folder / workdir / started)], (), cwd=cwd / folder, home=HOME, workdir=workdir)
    assert full.fields["run"] == ["python", started]


def test_a_script_that_is_in_both_folders(cwd: Path) -> None:
    (cwd / "sub" / "train.py").touch()
    with pytest.raises(UsageError, match=f"train.py may be {cwd}/train.py or {cwd}/sub/train.py"):
        resolve(["train.py"], (), cwd=cwd / "sub", home=HOME, workdir="..")
    inner = resolve(["train.py"], (), cwd=cwd, home=HOME, workdir="sub")
    assert inner.fields["run"] == ["python", "train.py"]
    assert inner.notices == (f"{cwd}/sub/train.py is run, and not {cwd}/train.py, which is outside of --workdir",)


def test_a_script_that_is_not_in_the_workdir(cwd: Path) -> None:
    with pytest.raises(UsageError, match="train.py is not in the folder with the code"):
        resolve(["train.py"], (), cwd=cwd, home=HOME, workdir="sub")
    with pytest.raises(NotFound, match="no such file: mian.py") as error:
        resolve(["mian.py"], (), cwd=cwd, home=HOME, workdir="sub")
    assert error.value.hint == "did you mean main.py?"
    with pytest.raises(NotFound, match="--workdir nowhere: no such folder"):
        resolve(["train.py"], (), cwd=cwd, home=HOME, workdir="nowhere")


def test_a_command_at_home_takes_no_code_along(cwd: Path) -> None:
    for folder, home in ((cwd, cwd), (Path("/"), HOME)):
        target = resolve((), ["true"], cwd=folder, home=home)
        assert target.fields["workdir"] is None
        assert "no code is copied" in target.notices[0]


def test_a_script_elsewhere_brings_its_own_folder(cwd: Path) -> None:
    outside = resolve(["../train.py", "x"], (), cwd=cwd / "sub", home=HOME)
    assert outside.fields == {"name": "train", "workdir": str(cwd), "run": ["python", "train.py", "x"]}
    below_home = resolve(["sub/main.py"], (), cwd=cwd, home=cwd)
    assert below_home.fields["workdir"] == str(cwd / "sub")


def test_job_files_merge(cwd: Path) -> None:
    assert resolve(["a.yaml", "b.json"], (), cwd=cwd, home=HOME).files == (Path("a.yaml"), Path("b.json"))
    with pytest.raises(UsageError, match=r"x\.py is not a job file"):
        resolve(["a.yaml", "x.py"], (), cwd=cwd, home=HOME)


@pytest.mark.parametrize(
    ("words", "kind", "hint"),
    [
        (["trian.py"], NotFound, "did you mean train.py?"),
        (["digits-2"], NotFound, "if digits-2 is a run: longboat rerun digits-2"),
        (["nowhere/x.py"], NotFound, "a command after --: longboat run -- COMMAND"),
        (["sub"], UsageError, "longboat run sub/job.yaml"),
        (["sh", "-c", "x"], UsageError, "longboat run -- sh -c x"),
    ],
)
def test_what_cannot_be_run(cwd: Path, words: list[str], kind: type[LongboatError], hint: str) -> None:
    with pytest.raises(kind) as caught:
        resolve(words, (), cwd=cwd, home=HOME)
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "name"),
    [("train2", "train2"), ("My_Train", "my-train"), ("7b", "b"), ("..", "run"), ("x" * 60, "x" * 32), ("/a/ls", "ls")],
)
def test_names(text: str, name: str) -> None:
    assert name_from(text) == name


@pytest.mark.parametrize(
    ("args", "words", "command", "detach"),
    [
        (["-d", "train.py", "-d", "--help"], ("train.py", "-d", "--help"), (), True),
        (["train.py", "-d"], ("train.py", "-d"), (), False),
        (["train.py", "--", "x"], ("train.py", "--", "x"), (), False),
        (["job.yaml", "-d"], ("job.yaml",), (), True),
        (["a.yaml", "-d", "b.yaml"], ("a.yaml", "b.yaml"), (), True),
        (["-d", "--", "echo", "-d"], (), ("echo", "-d"), True),
        (["--", "job.yaml", "-d"], (), ("job.yaml", "-d"), False),
        (["-d", "--", "sh", "-c", "a -- b"], (), ("sh", "-c", "a -- b"), True),
        (["job.yaml", "-d", "--", "x"], ("job.yaml",), ("x",), True),
        (["-n", "x", "--env", "A=1", "--env", "B", "t.py", "--env"], ("t.py", "--env"), (), False),
    ],
)
def test_whose_options_they_are(args: list[str], words: object, command: object, detach: bool) -> None:
    with run_command.make_context("run", list(args)) as ctx:
        assert (ctx.params["words"], ctx.params["command"], ctx.params["detach"]) == (words, command, detach)


def test_run_and_check_describe_a_job_alike() -> None:
    flags = [{name for param in command.params for name in param.opts} for command in (run_command, check_command)]
    assert flags[0] - flags[1] == {"-d", "--detach", "--failover", "--id", "--dry-run", "-q", "--quiet", "-y", "--yes"}


def test_no_flag_means_two_things() -> None:
    names = [name for param in run_command.params for name in itertools.chain(param.opts, param.secondary_opts)]
    assert len(names) == len(set(names))


def test_a_whole_command_in_one_word_is_told_where_it_belongs(cwd: Path) -> None:
    with pytest.raises(NotFound) as caught:
        resolve(["echo $HOME | wc"], (), cwd=cwd, home=HOME)
    assert caught.value.hint == "a line for the shell: longboat run -- 'echo $HOME | wc'"
