"""The fields `sweep` and `params` of the job file: a search space and how it is searched, parameters of one run."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import msgspec

from longboat.core.jobs import METHODS, SAMPLERS, Metric, Range, Scalar, Sweep, SweepStop, Value
from longboat.core.variables import param_variable
from longboat.core.words import counted
from longboat.specs.fields.composites import Field, ListOf, MapOf, Shape
from longboat.specs.fields.scalars import ChoiceOf, FieldPath, Flag, Text, WholeNumber, is_encodable, number_of, quote
from longboat.specs.params import PARAM_NAME
from longboat.specs.yaml.yaml_tree import YamlNode

MOST_TRIALS = 10_000
"""Trials of a sweep: its state is one file that is written at every change."""
MOST_OF_OPTUNA = 1000
"""Of these with `method: optuna`: its study is made anew whenever a trial starts, which takes a few seconds by then."""
MOST_PARAMS = 50  # no search of a few hundred trials says anything about more
PARAM_EXPECTED = "the name of a parameter: letters, digits, _ . -, beginning with a letter or _"


class ParamValue(Value, frozen=True):
    """A number, true or false, or text on one line."""

    expected: str = "a number, true, false or text on one line"

    def read(self, node: YamlNode, at: FieldPath) -> Scalar | None:
        value = node.value
        if isinstance(value, bool):
            return value
        if isinstance(value, (int, float)):
            return number_of(node, at, self.expected)
        if not isinstance(value, str) or not value.isprintable() or not is_encodable(value) or len(value) > 1000:
            at.wrong(node, self.expected)
            return None
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": ["number", "boolean", "string"]}


class PlainNumber(Value, frozen=True):
    expected: str = "a number"

    def read(self, node: YamlNode, at: FieldPath) -> float | None:
        return number_of(node, at, self.expected)

    def schema(self) -> dict[str, Any]:
        return {"type": "number"}


def _range(values: dict[str, Any], node: YamlNode, at: FieldPath) -> Range | None:
    low, high = values["min"], values["max"]
    is_log, step = values.get("log", False), values.get("step")
    is_whole = all(isinstance(value, int) for value in (low, high, 1 if step is None else step))
    fault = None
    if low >= high:
        fault = f"found min {low} and max {high}, expected min < max"
    elif is_log and low <= 0:
        fault = f"found min {low}, expected more than 0 where log is true"
    elif is_log and step is not None:
        fault = "found log and step, expected one of them"
    elif step is not None and not 0 < step <= high - low:
        fault = f"found step {step}, expected more than 0 and at most max - min"
    elif not math.isfinite((high - low) / (1.0 if step is None else step)):
        fault = "found bounds too far apart for numbers of a computer"
    if fault:
        at.problem(node, fault)
        return None
    return Range(low=low, high=high, is_log=is_log, is_whole=is_whole, step=step)


RANGE = Shape(
    fields=(
        Field(name="min", kind=PlainNumber(), doc="Lower bound.", example="16", required=True),
        Field(name="max", kind=PlainNumber(), doc="Upper bound.", example="512", required=True),
        Field(name="log", kind=Flag(), doc="Orders of magnitude are alike.", default="false", example="true"),
        Field(name="step", kind=PlainNumber(), doc="Only min, min + step, ...", example="0.1"),
    ),
    build=_range,
)
VALUES = ListOf(item=ParamValue(), what="values", least=1, single=False)


class ParamSpace(Value, frozen=True):
    """A list of values, or a range."""

    expected: str = "a list of values, or a mapping with min, max, log, step"

    def read(self, node: YamlNode, at: FieldPath) -> Any:
        if isinstance(node.value, list):
            values = VALUES.read(node, at)
            return None if values is None else tuple(dict.fromkeys(value for value in values if value is not None))
        if not isinstance(node.value, dict):
            at.wrong(node, self.expected)
            return None
        return RANGE.read(node, at)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [VALUES.schema(), RANGE.schema()]}


def _metric(values: dict[str, Any], node: YamlNode, at: FieldPath) -> Metric:
    return Metric(**values)


def _stop(values: dict[str, Any], node: YamlNode, at: FieldPath) -> SweepStop:
    return SweepStop(**values)


_METRIC_NAME = Text(expected="the name of a metric, as the trainer reports it", longest=200)
_METRIC_FIELDS = (
    Field(name="name", kind=_METRIC_NAME, doc="As in longboat.step(n, NAME=...).", example="loss", required=True),
    Field(name="goal", kind=ChoiceOf(options=("min", "max")), doc="Which is better.", default="min", example="max"),
)
_STOP_FIELDS = (
    Field(
        name="steps",
        kind=WholeNumber(low=1, high=1_000_000_000),
        doc="asha: a trial is compared with others first when it has come to this step.",
        default="1",
        example="10",
    ),
    Field(
        name="factor",
        kind=WholeNumber(low=2, high=100),
        doc="asha: of so many trials the best goes on, to be compared again at so many times the steps.",
        default="3",
        example="4",
    ),
    Field(
        name="failures",
        kind=WholeNumber(low=1, high=MOST_TRIALS),
        doc="The sweep ends when so many trials have failed.",
        example="3",
    ),
    Field(name="target", kind=PlainNumber(), doc="The sweep ends when a metric is as good as this.", example="0.05"),
)
_SETTINGS = (
    Field(
        name="method",
        kind=ChoiceOf(options=METHODS),
        doc="How the space is searched.",
        default="grid, or random where there is a range",
        example="tpe",
    ),
    Field(
        name="sampler",
        kind=ChoiceOf(options=SAMPLERS),
        doc="optuna: which of its samplers chooses the points.",
        default="tpe",
        example="cmaes",
    ),
    Field(
        name="trials",
        kind=WholeNumber(low=1, high=MOST_TRIALS),
        doc="How many trials.",
        default="every point of a grid; required otherwise",
        example="20",
    ),
    Field(name="parallel", kind=WholeNumber(low=1, high=1000), doc="Trials at once.", default="4", example="2"),
    Field(
        name="metric",
        kind=Shape(fields=_METRIC_FIELDS, build=_metric, short=_METRIC_NAME, short_name="name"),
        doc="What trials are compared by; text is `name`.",
        default="the loss, or the only metric reported",
        example="{name: accuracy, goal: max}",
    ),
    Field(
        name="stop",
        kind=Shape(fields=_STOP_FIELDS, build=_stop),
        doc="When trials, and the sweep, are stopped early.",
        default="{}",
        example="{failures: 3}",
    ),
)


class SweepKind(Shape, frozen=True):
    """Known fields beside parameters with names of the user's own."""

    @property
    def expected(self) -> str:
        return f"a mapping of parameters, and {', '.join(field.name for field in self.fields)}"

    def read(self, node: YamlNode, at: FieldPath) -> Sweep | None:
        if not isinstance(node.value, dict):
            at.wrong(node, self.expected, hint="for example sweep: {lr: [0.1, 0.01]}")
            return None
        before = at.mistakes.count
        names = {field.name for field in self.fields}
        own = {key: item for key, item in node.value.items() if key not in names}
        known = node._replace(value={key: item for key, item in node.value.items() if key in names})
        settings = super().read(known, at)
        space = MapOf(item=ParamSpace(), what="parameters", key=PARAM_NAME, key_expected=PARAM_EXPECTED).read(
            node._replace(value=own), at
        )
        if fault := clashing_names(own):
            at.problem(node, fault)
        if not own or len(own) > MOST_PARAMS:
            at.problem(node, f"found {len(own)} parameters, expected 1 to {MOST_PARAMS}")
        return _sweep(settings, space, node, at) if at.mistakes.count == before else None

    def schema(self) -> dict[str, Any]:
        names = "|".join(field.name for field in self.fields)
        params = {f"^(?!({names})$){PARAM_NAME}$": ParamSpace().schema()}
        return {**super().schema(), "patternProperties": params, "minProperties": 1}


def _sweep(settings: dict[str, Any], space: dict[str, Any], node: YamlNode, at: FieldPath) -> Sweep | None:
    ranges = [name for name, values in space.items() if isinstance(values, Range)]
    endless = [name for name in ranges if space[name].step is None]
    settings.setdefault("method", "optuna" if "sampler" in settings else "random" if ranges else "grid")
    if "sampler" in settings and settings["method"] != "optuna":
        at.problem(
            node, f"method {settings['method']} has no sampler", hint="method: optuna has: " + ", ".join(SAMPLERS)
        )
        return None
    sweep = Sweep(space=space, **settings)
    if sweep.method == "grid" and endless:
        hint = f"give {endless[0]} a list or a step, or write `method: random` and `trials: 20`"
        at.into(endless[0]).problem(node, "a grid has no points between min and max", hint=hint)
        return None
    if sweep.method != "grid" and sweep.trials is None:
        grid = "" if endless else f"; `method: grid` (--method grid) tries all {counted(grid_size(sweep), 'point')}"
        hint = f"for example `trials: 20` (--trials 20){grid}"
        at.problem(node, f"how many trials? method {sweep.method} has no end of its own", hint=hint)
        return None
    if sweep.method == "optuna" and (sweep.trials or 0) > MOST_OF_OPTUNA:
        at.problem(node, f"found {sweep.trials:,} trials, expected at most {MOST_OF_OPTUNA:,} with method optuna")
        return None
    size = grid_size(sweep) if sweep.method == "grid" else 0
    if size > MOST_TRIALS and sweep.trials is None:
        at.problem(node, f"the grid has {size:,} points, expected at most {MOST_TRIALS}", hint="method: random")
        return None
    return sweep


def grid_size(sweep: Sweep) -> int:
    """Points of the grid; only where every range has a step."""
    return math.prod(values.size if isinstance(values, Range) else len(values) for values in sweep.space.values())


def clashing_names(names: Iterable[str]) -> str | None:
    """Two parameters that would be the same environment variable."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(param_variable(name), name)
        if other != name:
            return f"{quote(other)} and {quote(name)} are the same variable, {param_variable(name)}"
    return None


SWEEP = SweepKind(fields=_SETTINGS)


def _params(values: dict[str, Any], node: YamlNode, at: FieldPath) -> dict[str, Any]:
    if fault := clashing_names(values):
        at.problem(node, fault)
    return values


PARAMS = MapOf(
    item=ParamValue(), what="parameters and their values", key=PARAM_NAME, key_expected=PARAM_EXPECTED, build=_params
)


def sweep_to_mapping(sweep: Sweep) -> dict[str, Any]:
    """The field as it is written in a job file."""
    shown = space_to_mapping(sweep)
    shown["method"] = sweep.method
    shown.update({"sampler": sweep.sampler} if sweep.method == "optuna" else {})
    shown.update({"trials": sweep.trials} if sweep.trials is not None else {})
    shown.update({"parallel": sweep.parallel} if sweep.parallel != Sweep(space={}).parallel else {})
    if sweep.metric is not None:
        shown["metric"] = {"name": sweep.metric.name, "goal": sweep.metric.goal}
    if sweep.stop != SweepStop():
        shown["stop"] = {name: value for name, value in msgspec.to_builtins(sweep.stop).items() if value is not None}
    return shown


def space_to_mapping(sweep: Sweep) -> dict[str, Any]:
    """The parameters alone: of each its values, or its range."""
    return {name: _shown_space(values) for name, values in sweep.space.items()}


def _shown_space(values: tuple[Scalar, ...] | Range) -> Any:
    if not isinstance(values, Range):
        return list(values)

    def number(value: float) -> float:
        return int(value) if values.is_whole else float(value)

    shown: dict[str, Any] = {"min": number(values.low), "max": number(values.high)}
    shown.update({"log": True} if values.is_log else {})
    shown.update({"step": number(values.step)} if values.step is not None else {})
    return shown
