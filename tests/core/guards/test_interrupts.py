"""Ctrl-C that is held back, whoever had set its handler before."""

from __future__ import annotations

import signal
import threading

import pytest

from longboat.core.guards.interrupts import held_interrupts


def test_it_is_noted_and_the_handler_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with held_interrupts() as pressed:
        signal.raise_signal(signal.SIGINT)
    assert pressed == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_handler_from_outside_of_python_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python knows no value for it: None, which cannot be set."""
    monkeypatch.setattr(signal, "getsignal", lambda _number: None)
    changed: list[int] = []
    monkeypatch.setattr(signal, "signal", lambda number, _handler: changed.append(number))
    with held_interrupts() as pressed:
        pass
    assert (pressed, changed) == ([], [])


def test_in_another_thread_nothing_is_changed() -> None:
    seen: list[list[int]] = []

    def hold() -> None:
        with held_interrupts() as pressed:
            seen.append(pressed)

    thread = threading.Thread(target=hold)
    thread.start()
    thread.join()
    assert seen == [[]]
