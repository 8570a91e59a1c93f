"""What `longboat run` was given: job files, a script with its arguments, or a command."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from longboat.core.commands import SHELLS, word_name
from longboat.core.errors import NotFound, UsageError
from longboat.core.words import nearest
from longboat.specs.yaml.mapping_file import STDIN

JOB_SUFFIXES = (".yaml", ".yml", ".json")
_LONGEST_LINE = 256  # bytes of a `#!` line that Linux reads


class RunTarget(NamedTuple):
    files: tuple[Path, ...] = ()
    fields: Mapping[str, object] = {}
    notices: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()  # after `--`: they go to the command of the job files


def is_job_file(word: str) -> bool:
    """Whether a word names a job file, by its suffix, or stdin."""
    return word == STDIN or word.endswith(JOB_SUFFIXES)


def resolve(
    words: Sequence[str], command: Sequence[str], *, cwd: Path, home: Path, workdir: str | None = None
) -> RunTarget:
    """Turn words before `--`, or the command after it, into job files or job fields.

    `workdir`: the folder with the code, where a flag names it.
    """
    if not command and not (words and words[0].strip()):
        raise UsageError("nothing to run", hint="name a script (train.py), a job file (job.yaml), or -- COMMAND")
    if words and is_job_file(words[0]):
        return RunTarget(files=tuple(from_files(words)), arguments=tuple(command))
    if words and command:
        raise UsageError("both a file and a command after --", hint=f"{asked()} FILE, or {asked()} -- COMMAND")
    if command:
        return from_command(command, cwd=cwd, home=home)
    if workdir is not None:
        target = in_workdir(words[0], words[1:], cwd=cwd, workdir=workdir)
    else:
        target = from_script(words[0], words[1:], cwd=cwd, home=home)
    if list(words[1:2]) == ["--"]:  # as Python and torchrun do; after a job file it would be ours
        notice = f"-- is passed on to {words[0]}: what follows a script is the script's without it"
        target = target._replace(notices=(*target.notices, notice))
    return target


def asked() -> str:
    """The command that was given these words, as its user wrote it."""
    ctx = click.get_current_context(silent=True)
    path = ctx.command_path if ctx is not None else "longboat run"
    return path.removesuffix(" start") if path.endswith("sweep start") else path  # nobody types it


def from_files(words: Sequence[str]) -> list[Path]:
    strange = next((word for word in words if not is_job_file(word)), None)
    if strange is not None:
        raise UsageError(
            f"{strange} is not a job file",
            hint=f"what is for the job's command comes after --: {asked()} {words[0]} -- {strange}",
        )
    return [Path(word) for word in words]


def from_command(command: Sequence[str], *, cwd: Path, home: Path) -> RunTarget:
    """Job fields of a command: one word with spaces is a shell line, as for ssh; several words run without a shell."""
    run: object = command[0] if len(command) == 1 and len(command[0].split()) > 1 else list(command)
    fields = {"name": name_from(command[0].split()[0] if command[0].strip() else ""), "run": run}
    if is_too_wide(cwd, home):
        note = f"no code is copied: {cwd} is not a project folder (use --workdir to name one)"
        return RunTarget(fields={**fields, "workdir": None}, notices=(note,))
    return RunTarget(fields=fields)


def from_script(script: str, arguments: Sequence[str], *, cwd: Path, home: Path) -> RunTarget:
    path = cwd / script
    if not path.is_file():
        raise missing_script(script, arguments, path)
    inside = Path(os.path.normpath(path))
    fields: dict[str, object] = {"name": name_from(path.stem)}
    notices: tuple[str, ...] = ()
    root = cwd
    if not inside.is_relative_to(cwd) or (is_too_wide(cwd, home) and inside.parent != cwd):
        root = inside.parent
        fields["workdir"] = str(root)
        notices = (f"the code that is copied: {root}",)
    fields["run"] = [*starter(inside, str(inside.relative_to(root))), *arguments]
    return RunTarget(fields=fields, notices=notices)


def in_workdir(script: str, arguments: Sequence[str], *, cwd: Path, workdir: str) -> RunTarget:
    """Job fields of `--workdir DIR SCRIPT`: the script relative to DIR or to the current folder, whichever exists."""
    root = Path(os.path.normpath(cwd / workdir))
    there, here = Path(os.path.normpath(root / script)), Path(os.path.normpath(cwd / script))
    if not root.is_dir():
        raise NotFound(f"--workdir {workdir}: no such folder")
    inside = [path for path in dict.fromkeys((there, here)) if path.is_file() and path.is_relative_to(root)]
    if not inside and here.is_file():
        raise UsageError(
            f"{script} is not in the folder with the code, {root}",
            hint="--workdir names a folder that holds the script",
        )
    if not inside:
        raise missing_script(script, arguments, there)
    if len(inside) == 2 and not os.path.samefile(*inside):
        raise UsageError(
            f"{script} may be {there} or {here}",
            hint=f"write one of them in full: {asked()} --workdir {workdir} {here}",
        )
    notices: tuple[str, ...] = ()
    if inside[0] == there != here and here.is_file() and not os.path.samefile(there, here):
        notices = (f"{there} is run, and not {here}, which is outside of --workdir",)
    run = [*starter(inside[0], str(inside[0].relative_to(root))), *arguments]
    return RunTarget(fields={"name": name_from(inside[0].stem), "run": run}, notices=notices)


def starter(path: Path, name: str) -> list[str]:
    """The command that starts a script: by its suffix, else the script itself if executable."""
    if path.suffix == ".py":
        return ["python", name]
    is_shell = path.suffix in (".sh", ".bash")
    if os.access(path, os.X_OK) and not (is_shell and not has_interpreter(path)):
        return [f"./{name}"]
    if is_shell:
        return [*(shell_of(path) or ["bash" if path.suffix == ".bash" else "sh"]), name]
    raise UsageError(
        f"{name} is neither a Python or shell script, nor executable, nor a job file",
        hint=f"chmod +x {name}, or {asked()} -- PROGRAM {name}",
    )


def has_interpreter(path: Path) -> bool:
    """Whether a script begins with `#!`: only a shell starts one that does not."""
    start = first_line(path)
    return start is None or start.startswith("#!")  # unreadable: it is started as it is, and what is wrong is told then


def shell_of(path: Path) -> list[str]:
    """The shell that the first line of a script names, with its options; empty: it names none."""
    words = (first_line(path) or "").removeprefix("#!").split()
    if words and word_name(words[0]) == "env":
        words = words[2 if words[1:2] == ["-S"] else 1 :]
    return [word_name(words[0]), *words[1:]] if words and word_name(words[0]) in SHELLS else []


def first_line(path: Path) -> str | None:
    """The `#!` line of a script, or an empty text; None: it cannot be read."""
    try:
        with open(path, "rb") as file:
            line = file.readline(_LONGEST_LINE).decode(errors="replace")
    except OSError:
        return None
    return line if line.startswith("#!") else ""


def missing_script(script: str, arguments: Sequence[str], path: Path) -> Exception:
    if path.is_dir():
        job_file = next((name for name in ("job.yaml", "longboat.yaml") if (path / name).is_file()), None)
        hint = f"{asked()} {os.path.join(script, job_file)}" if job_file else "name the script or the job file in it"
        return UsageError(f"{script} is a folder", hint=hint)
    if path.exists():
        return UsageError(f"{script} is a device or a pipe", hint="name a script or a job file (.yaml, .yml, .json)")
    from shutil import which

    near = nearest_file(path)
    has_arguments = bool(arguments) and not os.path.splitext(script)[1] and near is None  # torchrun of another machine
    if "/" not in script and (which(script) or has_arguments):
        return UsageError(f"{script} is not a file here", hint=f"{asked()} -- {' '.join((script, *arguments))}")
    if " " in script and not arguments and which(script.split()[0]):
        import shlex

        return NotFound(f"no such file: {script}", hint=f"a line for the shell: {asked()} -- {shlex.quote(script)}")
    return NotFound(f"no such file: {script}", hint=near or for_a_name(script))


def for_a_name(word: str) -> str:
    """A hint for who has given the name of a run, or of a sweep, in a file's place."""
    command = asked()
    if "/" in word or "." in word:
        return f"name a script, a job file (.yaml, .yml, .json), or a command after --: {command} -- COMMAND"
    is_sweep = "sweep" in command.split()
    return (
        f"if {word} is a sweep: longboat sweep status {word}"
        if is_sweep
        else f"if {word} is a run: longboat rerun {word}"
    )


def nearest_file(path: Path) -> str | None:
    try:
        names = sorted(entry.name for entry in os.scandir(path.parent) if entry.is_file())
    except OSError:
        return None
    near = nearest(path.name, names)
    return f"did you mean {near[0]}?" if near else None


def is_too_wide(folder: Path, home: Path) -> bool:
    """Whether the folder is the home or a file system's root, which nobody means to copy."""
    return folder in (home, Path(folder.anchor))


def name_from(text: str) -> str:
    """Derive a run's name from a file or program: a-z, 0-9 and '-', beginning with a letter."""
    from longboat.engines.shared.home import STEM_LIMIT

    words = re.sub(r"[^a-z0-9]+", "-", os.path.basename(text).lower()).lstrip("-0123456789")
    return words[:STEM_LIMIT].strip("-") or "run"
