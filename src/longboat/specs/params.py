"""Parameters in a job: `${sweep.NAME}` in its commands and variables, replaced by their values. Pure.

How a sweep chooses parameters is in `sweeps`; the variables that carry them are in `core.variables`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from longboat.core.guards.lazy_pattern import lazy_pattern
from longboat.core.jobs import Command, Job, Range, Role, Scalar, Sweep
from longboat.core.variables import param_variable, show_param

PARAM_NAME = r"[A-Za-z_][A-Za-z0-9_.-]{0,62}"
MENTION = lazy_pattern(r"\$\{sweep\.(" + PARAM_NAME + r")\}")
_PLAIN = lazy_pattern(r"[A-Za-z0-9_@%+=:,./-]+")  # means the same to every shell, quoted or not


def mentioned(job: Job) -> list[str]:
    """Parameters that the job's commands and variables name, in order, each once."""
    texts = [job.setup or ""]
    for role in job.roles:
        texts += [role.run] if isinstance(role.run, str) else role.run
        texts += role.env.values()
    return list(dict.fromkeys(name for text in texts for name in MENTION.findall(text)))


def is_in_space(sweep: Sweep, params: Mapping[str, Scalar]) -> bool:
    """Whether this is a point of the space: what a stored state says is not taken on trust."""
    return params.keys() == sweep.space.keys() and all(
        _holds(values, params[name]) for name, values in sweep.space.items()
    )


def _holds(values: tuple[Scalar, ...] | Range, value: Scalar) -> bool:
    if not isinstance(values, Range):
        return any(value == each and type(value) is type(each) for each in values)  # 1, 1.0 and true are equal
    if isinstance(value, (bool, str)) or isinstance(value, int) is not values.is_whole:
        return False
    return values.low <= value <= values.high and (values.step is None or _is_on_grid(values, values.step, value))


def _is_on_grid(values: Range, step: float, value: float) -> bool:
    """Points of a grid are rounded to 12 digits: 0.1 + 2 * 0.1 reads 0.3."""
    place = (value - values.low) / step
    rounding = 1e-6 + 1e-12 * max(abs(values.low), abs(values.high)) / step
    return round(place) < values.size and abs(place - round(place)) <= rounding


def with_params(job: Job, params: Mapping[str, Scalar]) -> Job:
    """The job of one trial: these parameters beside its own, `${sweep.NAME}` replaced in `run`, `setup` and `env`."""
    known = {**job.params, **params}
    return msgspec.structs.replace(
        job,
        params=known,
        sweep=None,
        setup=None if job.setup is None else _in_shell(job.setup, known),
        roles=tuple(_role(role, known) for role in job.roles),
    )


def _role(role: Role, params: Mapping[str, Scalar]) -> Role:
    env = {name: _replaced(value, params) for name, value in role.env.items()}
    return msgspec.structs.replace(role, run=_command(role.run, params), env=env)


def _command(command: Command, params: Mapping[str, Scalar]) -> Command:
    if isinstance(command, str):
        return _in_shell(command, params)
    return tuple(_replaced(word, params) for word in command)


def _in_shell(text: str, params: Mapping[str, Scalar]) -> str:
    """A value that a shell might take for something else stays a variable: no value becomes a command."""

    def shown(match: re.Match[str]) -> str:
        if match[1] not in params:
            return match[0]
        value = show_param(params[match[1]])
        return value if _PLAIN.fullmatch(value) else f"${{{param_variable(match[1])}}}"

    return MENTION.sub(shown, text)


def _replaced(text: str, params: Mapping[str, Scalar]) -> str:
    return MENTION.sub(lambda match: show_param(params[match[1]]) if match[1] in params else match[0], text)
