"""A token is sought once, anew before it runs out, and anew when the store refuses it."""

from __future__ import annotations

import time

from longboat.storage.credentials.oauth_token import RENEW_S, BearerToken, Token
from longboat.storage.http import HttpRejected, HttpRequest

LATER = time.time() + 3600.0


def bearer(*tokens: Token | None) -> BearerToken:
    return BearerToken(iter(tokens).__next__)


def refused(token: Token, status: int = 401) -> tuple[HttpRejected, HttpRequest]:
    return HttpRejected(status, "", {}), HttpRequest("GET", "https://store.test/", {"Authorization": token.header})


def test_it_is_sought_once() -> None:
    first = Token("first", LATER)
    one = bearer(first)
    assert one.token() is one.token() is first
    nothing = bearer(None)
    assert nothing.token() is nothing.token() is None


def test_one_that_runs_out_soon_is_replaced() -> None:
    old, new = Token("old", time.time() + RENEW_S / 2), Token("new", LATER)
    one = bearer(old, new)
    assert one.token() is old and one.token() is new and one.token() is new


def test_one_that_is_refused_is_replaced_and_only_then_is_it_worth_another_try() -> None:
    first, second = Token("first", LATER), Token("second", LATER)
    one = bearer(first, second, second)
    assert one.token() is first
    assert not one.learn_from(*refused(first, 403))
    assert one.learn_from(*refused(first)) and one.token() is second
    assert one.learn_from(*refused(first)), "another thread has a new one already"
    assert not one.learn_from(*refused(second)), "the same again"
