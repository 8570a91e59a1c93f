"""Installs add-ons into a cluster: each is planned, applied and waited for. One that fails stops no other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from longboat.clusters.addons.addon import AddonInputs
from longboat.clusters.addons.catalog import MAKERS, make_addon
from longboat.clusters.addons.decide import AddonPlan, AddonState
from longboat.clusters.addons.observe import lacking, plan_addon, pod_labels
from longboat.clusters.spec import Addon
from longboat.core.errors import EngineError, LongboatError
from longboat.core.jobs import Value
from longboat.core.words import counted
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import kind_of

READY_S = 300.0  # images are pulled for the first time, and JobSet and Kueue make certificates, a minute or two
_LOOK_S = 0.5  # one request; add-ons take seconds to become ready

Say = Callable[[str], None]


class AddonFailure(Value, frozen=True):
    name: str
    message: str
    hint: str = ""


class AddonResult(Value, frozen=True):
    """What became of the add-ons of a cluster."""

    states: tuple[tuple[Addon, AddonState], ...] = ()
    """Of those that did not fail: what was done."""
    failures: tuple[AddonFailure, ...] = ()

    def check(self, count: int) -> None:
        """Raises EngineError if one of them failed."""
        if self.failures:
            raise EngineError(
                f"{len(self.failures)} of {counted(count, 'add-on')} failed",
                hint="mend what is named above, then the same command again goes on from there",
            )


def in_order(addons: Sequence[Addon]) -> list[Addon]:
    return [name for name in MAKERS if name in addons]


def plan_addons(client: Client, inputs: AddonInputs) -> Iterator[AddonPlan | AddonFailure]:
    """The plan for each add-on, or why there is none; for `--dry-run`. The cluster is only looked at."""
    for name in in_order(inputs.spec.addons):
        try:
            yield plan_addon(client, make_addon(name, inputs))
        except LongboatError as error:
            yield _failure(name, error)


def install_addons(client: Client, inputs: AddonInputs, say: Say) -> AddonResult:
    """All are applied before one is waited for: their images are pulled side by side."""
    begun: list[AddonPlan] = []
    failures: list[AddonFailure] = []
    for name in in_order(inputs.spec.addons):
        try:
            plan = plan_addon(client, make_addon(name, inputs))
            _apply(client, plan)
        except LongboatError as error:
            failures.append(_failure(name, error))
        else:
            begun.append(plan)
            if plan.state in ("omitted", "foreign"):
                say(f"longboat: {plan.line}")
    deadline = time.monotonic() + READY_S
    for plan in begun:
        try:
            _finish(client, plan, say, deadline)
        except LongboatError as error:
            failures.append(_failure(plan.manifest.name, error))
    for failure in failures:
        say(f"error: {failure.name}: {failure.message}")
        if failure.hint:
            say(f"hint: {failure.hint}")
    failed = {failure.name for failure in failures}
    states = [(plan.manifest.name, plan.state) for plan in begun if plan.manifest.name not in failed]
    return AddonResult(states=tuple(states), failures=tuple(failures))


def _failure(name: str, error: LongboatError) -> AddonFailure:
    return AddonFailure(name=name, message=error.message, hint=error.hint or "")


def _apply(client: Client, plan: AddonPlan) -> None:
    for body in plan.apply:
        client.apply(body)
    for body in plan.prune:
        meta = body["metadata"]
        client.delete(kind_of(body), meta["name"], namespace=meta.get("namespace"), uid=meta["uid"])


def _finish(client: Client, plan: AddonPlan, say: Say, deadline: float) -> None:
    """Wait until it works. What was installed before is looked at too: it may have been cut off then."""
    if plan.state in ("omitted", "foreign"):
        return
    began = time.monotonic()
    while reason := lacking(client, plan.manifest):
        if time.monotonic() > deadline:
            hint = f"kubectl describe pods -A -l {_pods_of(plan)}" if _pods_of(plan) else None
            raise EngineError(f"does not work after {time.monotonic() - began:.0f} s: {reason}", hint=hint)
        time.sleep(_LOOK_S)
    name = f"{plan.manifest.name} {plan.manifest.version}".rstrip()
    say(f"longboat: {name}: {'nothing to do' if plan.state == 'same' else 'works'}{plan.left_text}")
    if plan.state != "same":
        for note in plan.manifest.notes:
            say(f"longboat: {plan.manifest.name}: {note}")


def _pods_of(plan: AddonPlan) -> str:
    """A selector of the pods of its first workload."""
    for body in plan.manifest.objects:
        if body["kind"] in ("Deployment", "DaemonSet"):
            return pod_labels(body)
    return ""


def dry_run_line(plan: AddonPlan | AddonFailure) -> str:
    if isinstance(plan, AddonFailure):
        return f"  ! {plan.name}: {plan.message}"
    mark = {"install": "+", "change": "~"}.get(plan.state, "=")
    return f"  {mark} {plan.line}"
