"""Calls in threads of their own: results and errors come to whoever asks."""

from __future__ import annotations

import threading

import pytest

from longboat.core.guards.background_call import BackgroundCall


def test_the_result_is_that_of_the_call_and_it_goes_on_meanwhile() -> None:
    may_end = threading.Event()
    call = BackgroundCall(lambda: (may_end.wait(60.0), threading.current_thread().name))
    may_end.set()
    assert call.result() == (True, "background-call")
    assert call.result() == (True, "background-call"), "as often as asked"


def test_an_error_comes_to_whoever_asks() -> None:
    def fail() -> None:
        raise ValueError("no")

    call = BackgroundCall(fail)
    with pytest.raises(ValueError, match="no"):
        call.result()
