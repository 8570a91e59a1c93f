"""The places whose runs a dashboard shows: this machine, and clusters by their kubeconfig contexts."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from longboat.core.errors import NotFound
from longboat.core.words import listing
from longboat.engines.engine import Engine
from longboat.kubeapi import kubeconfig
from longboat.sdk.engines import default_engine, engine
from longboat.sdk.places import place_names

LOCAL = "local"
TITLE = "this machine"


class ShownPlace(NamedTuple):
    """One engine with the name that addresses it."""

    name: str  # of letters, digits, dots and dashes: it is a part of URLs
    title: str
    kind: str
    engine: Engine
    context: str | None = None
    namespace: str | None = None
    user: str = ""  # as whom it is asked, where the dashboard has several users

    def command(self, *words: str) -> str:
        """A `longboat` command that means this place."""
        return shlex.join(["longboat", *words, *self.options])

    @property
    def options(self) -> list[str]:
        """By which a command means this place; none where the defaults do."""
        is_named = self.context is not None or self.namespace is not None
        where = ["--engine", self.kind] if default_engine(is_cluster=is_named) != self.kind else []
        where += ["--on", self.context] if self.context is not None else []
        where += ["--namespace", self.namespace] if self.namespace is not None else []
        return where


def url_name(text: str, taken: Sequence[str]) -> str:
    """A name for URLs: contexts may hold slashes and colons. Pure."""
    base = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.") or "cluster"
    names = (base if number == 1 else f"{base}-{number}" for number in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)


def open_places(contexts: Sequence[str], namespaces: Sequence[str] = (), *, has_local: bool = True) -> list[ShownPlace]:
    """This machine, then the clusters of these contexts; without any, the cluster that is set as default engine.

    Raises KubeconfigError for a context that is not there; one whose cluster does not answer is shown as that.
    """
    places = [ShownPlace(LOCAL, TITLE, LOCAL, engine(LOCAL))] if has_local else []
    named = [name for text in contexts for name in place_names(text) or (text,)]
    chosen: list[str | None] = [name for name in dict.fromkeys(named) if name != LOCAL]
    if not named and (namespaces or not has_local or default_engine(is_cluster=False) != LOCAL):
        chosen = [None]
    for context in chosen:
        for namespace in dict.fromkeys(namespaces) or (None,):
            kubeconfig.find(context, namespace, os.environ)
            title = context or "cluster"
            title = f"{title}/{namespace}" if len(set(namespaces)) > 1 else title
            opened = engine("kubernetes", context=context, namespace=namespace)
            name = url_name(title, [place.name for place in places])
            places.append(ShownPlace(name, title, "kubernetes", opened, context, namespace))
    return places


def find_place(places: Sequence[ShownPlace], name: str) -> ShownPlace:
    """Raises NotFound."""
    for place in places:
        if place.name == name:
            return place
    known = listing([place.name for place in places], 8)
    raise NotFound(f"no cluster named {name!r} is shown", hint=f"one of {known}; longboat ui --on adds another")
