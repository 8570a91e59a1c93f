"""Secrets by name: from the submitter's environment, a file, or the engine's own store. Values never leave memory,
except into that store, readable by its owner only."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from longboat.core.errors import EngineError, LongboatError, NotFound, SecretMissing, UsageError
from longboat.core.guards.lazy_pattern import lazy_pattern
from longboat.core.guards.masking import LEAST
from longboat.core.jobs import Secret
from longboat.engines.shared.files import disk, make_folder, write_bytes
from longboat.engines.shared.home import Home

_NAME = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*")
_FOLDER = "secrets"
_HINT = "encode it, with base64 for example, and decode it in the job"


def set_secret(home: Home, name: str, value: str) -> None:
    if reason := why_unusable(value):
        raise UsageError(f"secret {name}: {reason}", hint=_HINT)
    make_folder(home.root / _FOLDER, is_durable=True)
    write_bytes(_path(home, name), value.encode(), is_durable=True)


def list_secrets(home: Home) -> list[str]:
    with disk("list secrets"):
        return sorted(entry.name for entry in os.scandir(home.folder(_FOLDER)) if _NAME.fullmatch(entry.name))


def remove_secret(home: Home, name: str) -> None:
    try:
        _path(home, name).unlink()
    except FileNotFoundError:
        raise NotFound(f"no secret named {name}", hint="`longboat secret ls` lists them") from None


def read_secrets(home: Home, secrets: Sequence[Secret], environment: Mapping[str, str]) -> dict[str, str]:
    """Secret values by variable name. Raises SecretMissing, which names it; EngineError."""
    values = {secret.name: _read(home, secret, environment) for secret in secrets}
    for name, value in values.items():
        if reason := why_unusable(value):
            raise EngineError(f"secret {name}: {reason}", hint=_HINT)
    return values


def readable_secrets(
    home: Home, secrets: Sequence[Secret], environment: Mapping[str, str], tell: Callable[[str], None] | None = None
) -> dict[str, str]:
    """Secret values that are available here, without those set only in the submitter's shell. `tell` gets a message for
    each missing one.
    """
    values: dict[str, str] = {}
    for secret in secrets:
        try:
            values.update(read_secrets(home, [secret], environment))
        except LongboatError as error:
            if tell is not None:
                tell(error.message)
    return values


def unmasked(values: Mapping[str, str]) -> list[str]:
    """Warnings about secrets too short to be masked in logs."""
    short = [name for name, value in values.items() if 0 < len(value.encode()) < LEAST]
    return [f"secret {name} has fewer than {LEAST} characters: it is not masked in logs" for name in short]


def why_unusable(value: str) -> str | None:
    """Why a value cannot be an environment variable; None: it can."""
    if "\0" in value:
        return "its value has a NUL byte, which no environment variable can hold"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "its value is not UTF-8 text"
    return None


def _read(home: Home, secret: Secret, environment: Mapping[str, str]) -> str:
    if secret.file is not None:
        path = Path(os.path.expanduser(secret.file))
        try:
            return path.read_text().rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            kind = SecretMissing if isinstance(error, FileNotFoundError) else EngineError
            raise kind(f"secret {secret.name}: cannot read {path}", hint="check secrets in the job file") from error
    if secret.store is None:
        value = environment.get(secret.env or secret.name)
        if value is not None:
            return value
    if secret.env is None:
        try:
            return _path(home, secret.store or secret.name).read_text()
        except FileNotFoundError:
            pass
        except (OSError, UnicodeDecodeError) as error:
            raise EngineError(f"secret {secret.name}: cannot read the store") from error
    raise SecretMissing(
        f"secret {secret.name} is neither in the environment nor in the store",
        hint=f"export {secret.env or secret.name}, or `longboat secret set {secret.store or secret.name}`",
    )


def _path(home: Home, name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a name for a secret", hint="letters, digits and '_', such as HF_TOKEN")
    return home.root / _FOLDER / name
