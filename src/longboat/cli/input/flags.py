"""Flags of `longboat run` and `check` become fields of a job. Pure but for the env files it is told to read."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longboat.core.errors import NotFound, UsageError
from longboat.core.guards.lazy_pattern import lazy_pattern

FIELDS = ("nodes", "spares", "procs", "gpus", "cpus", "memory", "retries", "timeout", "grace", "stall", "priority")
TEXTS = ("name", "image", "framework", "queue", "setup")
"""Flags that are fields of the same name."""
VARIABLE = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*")


def fields_of(options: Mapping[str, Any], *, environment: Mapping[str, str], cwd: Path) -> dict[str, object]:
    """Job fields from flags; a flag that was not given sets none."""
    fields: dict[str, object] = {name: number(options[name]) for name in FIELDS if options.get(name) is not None}
    fields.update({name: options[name] for name in TEXTS if options.get(name) is not None})
    if options.get("workdir") is not None:
        fields["workdir"] = os.path.join(cwd, options["workdir"])
    checkpoints: dict[str, object] = {}
    if options.get("checkpoints") is not None:
        checkpoints["to"] = absolute(options["checkpoints"], cwd)
    if options.get("resume") is not None:
        checkpoints["resume"] = options["resume"]
    collections: dict[str, object] = {
        "env": env_of(options.get("env_file", ()), options.get("env", ()), environment=environment, cwd=cwd),
        "labels": dict(pair(text, "label") for text in options.get("label", ())),
        "artifacts": list(options.get("artifact", ())),
        "after": list(options.get("after", ())),
        "secrets": list(options.get("secret", ())),
        "include": list(options.get("include", ())),
        "volumes": dict(volume(text, cwd) for text in options.get("volume", ())),
        "checkpoints": checkpoints,
    }
    return {**fields, **{name: value for name, value in collections.items() if value}}


def number(text: str) -> object:
    """Parse a whole number; any other text is left for the job reader to validate."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,40}", text) else text


def absolute(place: str, cwd: Path) -> str:
    """Resolve a path against the current folder; URLs are left as they are."""
    return place if "://" in place else os.path.normpath(os.path.join(cwd, place))


def pair(text: str, flag: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--{flag} {text}: expected K=V", hint=f"for example --{flag} key=value")
    return key, value


def volume(text: str, cwd: Path) -> tuple[str, object]:
    """Parse `TARGET=SOURCE[:ro]` into an entry of `volumes`, which the job reader validates."""
    target, equals, source = text.partition("=")
    if not (target and equals and source):
        raise UsageError(
            f"--volume {text}: expected TARGET=SOURCE",
            hint="data=./data, /data=claim:NAME, /data=nfs:SERVER:/PATH, tmp=scratch; :ro at the end: read only",
        )
    read_only = source.endswith(":ro")
    kind, colon, rest = source.removesuffix(":ro").partition(":")
    entry: dict[str, object] = {"read_only": True} if read_only else {}
    if colon and kind in ("claim", "nfs"):
        entry[kind] = rest
    elif kind == "scratch":
        entry["scratch"] = rest if colon else True
    else:
        entry["path"] = os.path.normpath(os.path.join(cwd, os.path.expanduser(source.removesuffix(":ro"))))
    return target, entry


def env_of(files: Sequence[str], texts: Sequence[str], *, environment: Mapping[str, str], cwd: Path) -> dict[str, str]:
    """Variables of the env files, then of the flags; a bare name copies the shell's value."""
    env: dict[str, str] = {}
    for file in files:
        env.update(read_env_file(cwd / file, environment))
    for text in texts:
        env.update([variable(text, environment)])
    return env


def variable(text: str, environment: Mapping[str, str]) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if equals and key:
        return key, value.replace("${", "$${")  # the shell has done all the replacing that was wanted
    if not VARIABLE.fullmatch(key):
        raise UsageError(
            f"--env {text}: {key!r} is not the name of a variable", hint="write --env NAME=VALUE, or --env NAME"
        )
    if key not in environment:
        raise UsageError(f"--env {text}: {text} is not set in this shell", hint=f"--env {text}=VALUE gives it a value")
    return key, environment[key].replace("${", "$${")


def read_env_file(path: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Read K=V lines with `#` comments, `export` and one pair of quotes around a value; nothing is expanded."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(f"no such file: {path}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    file: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip().removeprefix("export ").strip()
        if not line or line.startswith("#"):
            continue
        key, equals, value = line.partition("=")
        key, value = key.strip(), value.strip()
        if not key.isidentifier():
            raise UsageError(f"{path}:{number}: expected K=V", hint="one variable per line; # begins a comment")
        if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        file.update([variable(f"{key}={value}" if equals else key, environment)])
    return file
