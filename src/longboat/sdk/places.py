"""Opens several places by the names of `--on`: contexts, `local`, groups of the settings, `all`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from longboat.core.errors import UsageError
from longboat.core.words import listing, nearest
from longboat.engines.engine import Engine
from longboat.multicluster.ask import NamedEngine
from longboat.sdk.engines import engine, has_settings

if TYPE_CHECKING:
    from longboat.engines.lifecycle.budgets import Budget

ALL = "all"
LOCAL = "local"
NEARLY = 0.8
"""Of a budget: from here on each submission tells of it."""


def place_names(text: str) -> tuple[str, ...] | None:
    """The places that `--on TEXT` means where they are several, or one that is no context; else None."""
    groups = _groups()
    words = [word.strip() for word in text.split(",")]
    if len(words) == 1 and text not in groups and (text not in (ALL, LOCAL) or text in _contexts()):
        return None
    if "" in words:
        raise UsageError(f"--on {text}: a name is missing", hint="write it like --on lab,aws,local")
    names: list[str] = []
    for word in words:
        names += groups.get(word) or (everywhere() if word == ALL else (word,))
    check_known(text, names, groups)
    return tuple(dict.fromkeys(names))


def check_known(text: str, names: Sequence[str], groups: Mapping[str, Sequence[str]]) -> None:
    """A misspelt place in a list is an error as it is alone: the job would run elsewhere. Raises KubeconfigError."""
    from longboat.kubeapi.errors import KubeconfigError
    from longboat.kubeapi.kubeconfig import IN_CLUSTER

    known = {LOCAL, IN_CLUSTER, *_contexts()}
    for name in names:
        if name in known:
            continue
        owner = next((group for group, members in groups.items() if name in members), None)
        if owner is not None and owner in text.split(","):
            raise KubeconfigError(
                f"--on {text}: the group {owner} names {name!r}, which is no context",
                hint=f"longboat config set groups.{owner} '[local, CONTEXT]'",
            )
        near = nearest(name, [*sorted(known - {IN_CLUSTER}), *groups])
        hint = f"did you mean {near[0]}?" if near else f"there are {listing(sorted(known - {IN_CLUSTER}), 12)}"
        raise KubeconfigError(f"--on {text}: no context or group is called {name!r}", hint=hint)


def everywhere() -> tuple[str, ...]:
    """This machine and every context of the kubeconfig."""
    return (LOCAL, *sorted(_contexts()))


def _contexts() -> set[str]:
    from longboat.kubeapi import kubeconfig

    return set(kubeconfig.read(kubeconfig.files_of(os.environ)).contexts)


def _groups() -> dict[str, tuple[str, ...]]:
    if not has_settings():
        return {}
    from longboat.engines.kubernetes.settings import read_settings

    return read_settings(os.environ).groups


def currency() -> str:
    """The currency of the prices that were set."""
    if not has_settings():
        return "USD"
    from longboat.engines.kubernetes.settings import read_settings

    return read_settings(os.environ).currency


def budgets() -> list[Budget]:
    """Those that were set."""
    if not has_settings():
        return []
    from longboat.engines.kubernetes.settings import read_settings
    from longboat.engines.lifecycle.budgets import Budget

    return [
        Budget(
            name=name,
            gpu_hours=values["gpu_hours"],
            hold=values.get("hold", False),
            **({"per_s": values["per"]} if "per" in values else {}),
        )
        for name, values in read_settings(os.environ).budgets.items()
    ]


def budgets_at(engine: Engine) -> tuple[list[Budget], list[str]]:
    """Those that an administrator wrote on the engine's namespace, and a note where they cannot be read."""
    if engine.name != "kubernetes":
        return [], []
    from longboat.engines.kubernetes.engine import KubernetesEngine
    from longboat.engines.kubernetes.gate.budgets import budgets_of

    assert isinstance(engine, KubernetesEngine)
    try:
        return budgets_of(engine.client), []
    except ValueError as error:
        return [], [f"{error}: nobody is held back"]


def budget_notices(engine: Engine, labels: Mapping[str, str]) -> list[str]:
    """Budgets of a run with these labels that are nearly or all used up, by the runs that the engine lists."""
    import time

    from longboat.engines.lifecycle.budgets import budget_words
    from longboat.engines.shared.home import current_user

    there, notes = budgets_at(engine)
    mine = [budget for budget in (*budgets(), *there) if budget.covers(current_user(), labels)]
    if not mine:
        return notes
    runs, now = engine.list(), time.time()
    judged = [budget_words(budget, runs, now) for budget in mine]
    words = [f"{text}: {'used up' if share >= 1 else 'nearly used up'}" for share, text in judged if share >= NEARLY]
    return [*notes, *words]


def open_place(name: str, namespace: str | None = None, on_notice: Callable[[str], None] | None = None) -> NamedEngine:
    if name == LOCAL:
        return NamedEngine(LOCAL, engine("local", on_notice=on_notice))
    return NamedEngine(name, engine("kubernetes", context=name, namespace=namespace, on_notice=on_notice))
