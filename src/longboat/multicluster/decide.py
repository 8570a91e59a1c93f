"""The choice of a cluster for a run: free room now, then waiting time, then cost, then the order of the user. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from longboat.core.jobs import Value
from longboat.core.resources import format_duration
from longboat.engines.lifecycle.outlook import Outlook

RUNS = ("now", "waits", "buys")
"""Answers of a place that can run it, sooner or later."""


class AskedPlace(Value, frozen=True):
    """A place and what it answered."""

    name: str
    outlook: Outlook


class Choice(Value, frozen=True):
    order: tuple[str, ...]  # that can run it, the best first
    chosen: str = ""  # why the first was chosen; empty: none can run it
    against: tuple[tuple[str, str], ...] = ()  # the others, in the order of the user, and why not


def choose(asked: Sequence[AskedPlace], currency: str = "USD") -> Choice:
    able = [place for place in asked if place.outlook.answer in RUNS]
    ranked = sorted(able, key=lambda place: _rank(place.outlook))  # stable: equals stay in the user's order
    if not ranked:
        return Choice(order=(), against=tuple((place.name, answer_words(place.outlook, currency)) for place in asked))
    best = ranked[0]
    against = [(place.name, _against(place, best, currency)) for place in asked if place is not best]
    return Choice(
        order=tuple(place.name for place in ranked),
        chosen=answer_words(best.outlook, currency),
        against=tuple(against),
    )


def _rank(outlook: Outlook) -> tuple[bool, float, float]:
    wait_s = 0.0 if outlook.answer == "now" else math.inf if outlook.wait_s is None else outlook.wait_s
    price = math.inf if outlook.price is None else outlook.price
    return outlook.answer != "now", wait_s, price


def _against(place: AskedPlace, best: AskedPlace, currency: str) -> str:
    """What speaks against a place; where it answered the same as the best, what made the difference."""
    text = answer_words(place.outlook, currency)
    mine, theirs = _rank(place.outlook), _rank(best.outlook)
    if place.outlook.answer not in RUNS or mine[:2] != theirs[:2]:
        return text
    return f"{text}: no cheaper than {best.name}" if mine == theirs else f"{text}: dearer than {best.name}"


def answer_words(outlook: Outlook, currency: str = "USD") -> str:
    """`room now, 2.40 USD per hour`; `waits about 10m: ...`."""
    about = "" if outlook.wait_s is None else f" about {format_duration(round(outlook.wait_s))}"
    texts = {
        "now": "room now",
        "waits": f"would wait{about}",
        "buys": f"would buy machines and wait{about}",
        "never": "can never run it",
        "unknown": "not known",
    }
    text = texts[outlook.answer] + (f" ({outlook.reason})" if outlook.reason else "")
    return text + (f", {price_words(outlook.price, currency)}" if outlook.answer in RUNS else "")


def price_words(price: float | None, currency: str) -> str:
    if price is None:
        return "price not known"
    return f"{price:,.2f} {currency} per hour" if price else "own machines"
