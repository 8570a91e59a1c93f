"""Points that optuna's samplers choose, for `method: optuna`. Optuna is an extra: it is imported here alone, and late.

A study is made anew from the stored trials whenever one starts, and they begin and end in it in their own order: so the
samplers that keep a state of their own (CMA-ES) have it, and whoever goes on with a sweep chooses the same points.
"""

from __future__ import annotations

import hashlib
import importlib
import warnings
from collections.abc import Sequence
from random import Random
from typing import Any

from longboat.core.errors import EngineError
from longboat.core.jobs import Metric, Range, Scalar, Sweep
from longboat.specs.params import is_in_space
from longboat.sweeps.space import Params, Values, value_at
from longboat.sweeps.trials import SweepTrial, loss_of

STATEFUL = ("cmaes", "qmc", "nsga")
"""Samplers that keep more than the outcomes of trials: what they drew is drawn again. Gaussian processes would take
seconds for it, and need it as little as Parzen estimators."""
EXTRA = "pip install 'longboat[optuna]'"
NEEDS = {"cmaes": "cmaes", "gp": "torch", "qmc": "scipy"}
"""What a sampler needs besides optuna itself."""


def check_installed(sweep: Sweep) -> None:
    """Raise EngineError with the command that brings what the sampler needs."""
    OptunaStudy(sweep, "", (), None).suggest(Random(0))


class OptunaStudy:
    """What trials have shown, for all points that are chosen in one turn."""

    def __init__(self, sweep: Sweep, seed: str, trials: Sequence[SweepTrial], metric: Metric | None) -> None:
        self.sweep = sweep
        self._optuna = _imported(sweep)
        self._space = {name: self._distribution(values) for name, values in sweep.space.items()}
        self._sampler = replaying(self._optuna, self._chosen(seed, len(trials)), is_stateful=sweep.sampler in STATEFUL)
        self._study = self._optuna.create_study(sampler=self._sampler)
        self._replay(trials, metric)

    def suggest(self, random: Random) -> dict[str, Scalar]:
        """The next point; it counts as one that is under way."""
        params = self._study.ask(self._space).params
        return {
            name: params[name] if _is_plain(values) else value_at(values, params[name])
            for name, values in self.sweep.space.items()
        }

    def note_running(self, point: Params) -> None:
        """Nothing: optuna knows what it has chosen."""

    def _replay(self, trials: Sequence[SweepTrial], metric: Metric | None) -> None:
        trials = [trial for trial in trials if is_in_space(self.sweep, trial.params)]  # a state may be forged
        events = [(trial.created or 0.0, 0, trial) for trial in trials]
        events += [(trial.ended or 0.0, 1, trial) for trial in trials if trial.is_final]
        asked: dict[int, Any] = {}
        states = self._optuna.trial.TrialState
        for _, _, trial in sorted(events, key=lambda event: (event[0], event[2].number, event[1])):
            if trial.number not in asked:
                space = self.sweep.space
                self._sampler.known = {name: _shown(space[name], value) for name, value in trial.params.items()}
                asked[trial.number] = self._study.ask(self._space)
                continue
            loss = None if metric is None or trial.phase != "succeeded" else loss_of(trial, metric)
            self._study.tell(asked[trial.number], loss, state=states.FAIL if loss is None else states.COMPLETE)
        self._sampler.known = None

    def _distribution(self, values: Values) -> Any:
        """Of lists and ranges with a step the numbers of their values: sums of 0.1 are not what is written, and 1 and
        true are equal to Python."""
        kinds = self._optuna.distributions
        if not isinstance(values, Range):
            return kinds.CategoricalDistribution(range(len(values)))
        if values.step is not None:
            return kinds.IntDistribution(0, values.size - 1)
        if values.is_whole:
            return kinds.IntDistribution(int(values.low), int(values.high), log=values.is_log)
        return kinds.FloatDistribution(values.low, values.high, log=values.is_log)

    def _chosen(self, seed: str, number: int) -> Any:
        """A sampler whose random numbers follow from the sweep's name; of one that does not draw again what earlier
        trials drew, also from the number of the trial."""
        samplers, quiet = self._optuna.samplers, {"warn_independent_sampling": False}
        own = _number(seed if self.sweep.sampler in STATEFUL else f"{seed}/{number}")
        others = samplers.RandomSampler(seed=own)
        if self.sweep.sampler == "cmaes":
            return samplers.CmaEsSampler(seed=own, independent_sampler=others, **quiet)
        if self.sweep.sampler == "qmc":
            return samplers.QMCSampler(
                seed=own, scramble=True, independent_sampler=others, warn_asynchronous_seeding=False, **quiet
            )
        if self.sweep.sampler == "gp":
            return samplers.GPSampler(seed=own)
        if self.sweep.sampler == "nsga":
            return samplers.NSGAIISampler(seed=own)
        return samplers.TPESampler(seed=own, multivariate=True, constant_liar=True)


def replaying(optuna: Any, inner: Any, *, is_stateful: bool) -> Any:
    """A sampler that gives what is in `known` while that is set; `inner` chooses all the same where its choice changes
    its state: a generation, the place in a sequence, random numbers that are used up."""

    class Replaying(optuna.samplers.BaseSampler):  # type: ignore[misc]
        known: dict[str, Scalar] | None = None

        def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
            return inner.infer_relative_search_space(study, trial)

        def sample_relative(self, study: Any, trial: Any, search_space: Any) -> Any:
            known = self.known
            if known and not is_stateful:
                return {name: known[name] for name in search_space}
            chosen = inner.sample_relative(study, trial, search_space)
            return (
                chosen if known is None else {name: known[name] for name in chosen}
            )  # the others are drawn one by one

        def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
            known = self.known
            if known and not is_stateful:
                return known[param_name]
            chosen = inner.sample_independent(study, trial, param_name, param_distribution)
            return chosen if known is None else known[param_name]

        def before_trial(self, study: Any, trial: Any) -> None:
            inner.before_trial(study, trial)

        def after_trial(self, study: Any, trial: Any, state: Any, values: Any) -> None:
            inner.after_trial(study, trial, state, values)

    return Replaying()


def _is_plain(values: Values) -> bool:
    return isinstance(values, Range) and values.step is None


def _shown(values: Values, value: Scalar) -> Scalar:
    """A value as optuna is told it."""
    if not isinstance(values, Range):
        return next(index for index, each in enumerate(values) if each == value and type(each) is type(value))
    return value if values.step is None else round((float(value) - values.low) / values.step)


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def _imported(sweep: Sweep) -> Any:
    """optuna, which says nothing. Raises EngineError."""
    needed = ["optuna", *([NEEDS[sweep.sampler]] if sweep.sampler in NEEDS else [])]
    try:
        modules = [importlib.import_module(name) for name in needed]
    except ImportError as error:
        name = error.name or needed[-1]
        hint = f"{EXTRA}, and {name}" if name == NEEDS["gp"] else EXTRA
        raise EngineError(f"sampler {sweep.sampler} needs {name}, which is not installed", hint=hint) from None
    modules[0].logging.set_verbosity(modules[0].logging.ERROR)
    warnings.filterwarnings("ignore", category=modules[0].exceptions.ExperimentalWarning)
    return modules[0]
