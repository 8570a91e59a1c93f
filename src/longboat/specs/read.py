"""Reads job files: files, fields and overrides to one Job."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longboat.core.jobs import Command, Framework, Job, Retries, Value
from longboat.specs.assembly import check_contradictions, deciding_command, make_job, role_fields
from longboat.specs.fields.job_fields import JOB
from longboat.specs.fields.rules import is_secret_name, suggest_name
from longboat.specs.fields.scalars import FieldPath, nearest
from longboat.specs.params import mentioned, with_params
from longboat.specs.substitution import substitute
from longboat.specs.yaml.mapping_file import FileHints, open_at_once, read_mapping, shown_name
from longboat.specs.yaml.yaml_tree import Mistakes, SourcePosition, YamlNode, from_python, merge

_FIELDS = {field.name for field in JOB.fields}
_SCRIPTS = (".py", ".sh", ".bash")
_MAX_SCRIPT_BYTES = 1 << 20  # only its first comments are read for settings


class LoadedJob(Value, frozen=True):
    job: Job
    base: str  # absolute folder of the first job file, else the current one
    notices: tuple[str, ...] = ()


def read_job(
    files: Sequence[Path],
    *,
    fields: Mapping[str, object] | None = None,
    overrides: Sequence[str] = (),
    environment: Mapping[str, str],
    cwd: Path | None = None,
) -> LoadedJob:
    """Files merged left to right, then fields, then overrides. Raises JobError with all mistakes, or NotFound."""
    mistakes = Mistakes()
    here = Path(os.path.abspath(cwd or Path.cwd()))
    trees = [_read_file(here, Path(file), mistakes) for file in files]
    if fields is not None:
        trees.append(from_python(fields, place=SourcePosition(), path="", mistakes=mistakes))
    if any(tree is None for tree in trees):
        mistakes.raise_if_any()  # what a half-read file seems to lack would only mislead
    root = YamlNode({}, SourcePosition(shown_name(files[0]), 1, 1) if files else SourcePosition())
    for tree in trees:
        if tree is not None:
            root = merge(root, tree)
    if overrides:
        from longboat.specs.overrides import apply_override

        for override in overrides:
            root = apply_override(root, override, mistakes)
    at = FieldPath("", mistakes)
    root = substitute(root, JOB, at, environment)
    values = JOB.read(root, at) or {}
    check_contradictions(values, root, at)
    mistakes.raise_if_any()
    base = Path(os.path.abspath(here / Path(files[0]).parent)) if files else here
    job = _job(values, base, files)
    _check_params(job, root, at)
    job = job if job.sweep is not None else with_params(job, {})
    return LoadedJob(job=job, base=str(base), notices=_notices(values))


def _check_params(job: Job, root: YamlNode, at: FieldPath) -> None:
    """`${sweep.NAME}` must be a parameter. Raises JobError."""
    known = {*job.params, *(job.sweep.space if job.sweep is not None else ())}
    for name in mentioned(job):
        if name not in known:
            close = nearest(name, known) if known else ""
            hint = f"longboat sweep FILE --param {name}=0.1,0.01, or `params: {{{name}: ...}}` for a single run"
            node = _naming(root, f"${{sweep.{name}}}") or root
            at.problem(node, f"found ${{sweep.{name}}}, and no parameter has this name{close}", hint=hint)
    at.mistakes.raise_if_any()


def _naming(node: YamlNode, text: str) -> YamlNode | None:
    """The first text of a tree that has this in it."""
    if isinstance(node.value, str):
        return node if text in node.value else None
    below = node.value if isinstance(node.value, list) else node.value.values() if isinstance(node.value, dict) else ()
    return next(filter(None, (_naming(each, text) for each in below)), None)


def _read_file(here: Path, path: Path, mistakes: Mistakes) -> YamlNode | None:
    folder = f"name the job file in it, for example {path}/job.yaml"
    hints = FileHints("a job file begins like this: `run: python train.py`", folder=folder)
    is_script = path.suffix in _SCRIPTS and (here / path).is_file()
    root = None if is_script else read_mapping(path, mistakes, hints, here=here)
    is_ours = root is None or not isinstance(root.value, dict) or root.value.keys() <= _FIELDS
    if is_ours and not is_script:
        return root
    from longboat.specs.fields.other_tools import other_file  # not at the start: most job files are ours

    other = other_file(root, shown_name(path))
    if other is None:
        return root
    mistakes.add(SourcePosition(shown_name(path)), "", other.message, hint=other.hint)
    return None


def _job(values: Mapping[str, Any], base: Path, files: Sequence[Path]) -> Job:
    command, roles = deciding_command(values)
    workdir = values.get("workdir", ".")
    script = None
    framework: Framework | None = values.get("framework")
    reason = "given"
    if framework is None:
        from longboat.core.frameworks import guess_framework

        if workdir not in (None, "none"):
            script = _script_text(command, base / os.path.expanduser(workdir))
        framework, reason = guess_framework(command, roles, script)
    name = values.get("name") or _derived_name(command, base, files)
    return make_job(values, name=name, framework=framework, reason=reason)


def _script_text(command: Command, folder: Path) -> str | None:
    from longboat.core.frameworks import script_of

    script = script_of(command)
    if script is None:
        return None
    try:
        with open(folder / script, "rb", opener=open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            return file.read(_MAX_SCRIPT_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None


def _derived_name(command: Command, base: Path, files: Sequence[Path]) -> str:
    """The job file's folder; without a file, the script, else the program."""
    if files:
        return suggest_name(base.name)
    from longboat.core.frameworks import script_of

    script = script_of(command)
    words = command.split() if isinstance(command, str) else command
    first = Path(words[0]).name if words else ""
    return suggest_name(Path(script).stem if script else first, fallback=suggest_name(base.name))


def _notices(values: Mapping[str, Any]) -> tuple[str, ...]:
    names = {name for role in role_fields(values).values() for name, value in (role.get("env") or {}).items() if value}
    retries = values.get("retries")
    is_never = retries is not None and not retries.count and retries != Retries()
    never = ("`retries` says how, and no `count`: nothing is tried again",) if is_never else ()
    return never + tuple(
        f"env.{name} looks like a secret, and values in env are stored with the run; list {name} under secrets instead"
        for name in sorted(names)
        if is_secret_name(name)
    )
