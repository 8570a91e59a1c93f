"""Hosts side by side: each failure with its host, nobody in another's way. Over real SSH in `test_ssh`."""

from __future__ import annotations

import builtins
import threading

import pytest

from longboat.clusters.hosts.connection import HostConnection, HostUnreachable
from longboat.clusters.hosts.pool import connect, side_by_side
from longboat.clusters.hosts.settings import LoginSettings
from longboat.clusters.spec import HostSpec
from longboat.core.errors import EngineError, Refused

HERE = [HostSpec(name=name, address="") for name in ("a", "b", "c")]


def test_each_host_at_the_same_time() -> None:
    together = threading.Barrier(3, timeout=60)
    with connect(HERE) as hosts:
        answers = hosts.each(lambda host: (together.wait() >= 0, host.name))
        assert answers.checked() == {name: (True, name) for name in "abc"}
        assert hosts.each(lambda host: host.name, names=["c", "a"]).values == {"a": "a", "c": "c"}
        assert hosts.each(lambda host: host.name, names=[]).values == {}


def test_failures_are_collected_and_bugs_are_not_hidden() -> None:
    def work(host: HostConnection) -> str:
        if host.name != "b":
            raise HostUnreachable(host.name, "it is off", hint="switch it on")
        return "fine"

    with connect(HERE) as hosts:
        answers = hosts.each(work)
        assert answers.values == {"b": "fine"}
        with pytest.raises(EngineError, match="a: it is off\nc: it is off") as caught:
            answers.checked()
        assert caught.value.hint == "switch it on"
        with pytest.raises(ZeroDivisionError):
            hosts.each(lambda host: 1 / 0)


def test_an_interrupt_stops_the_others() -> None:
    stopped = threading.Event()

    def work(name: str) -> None:
        if name == "first":
            raise KeyboardInterrupt
        assert stopped.wait(60)

    with pytest.raises(KeyboardInterrupt):
        side_by_side({"first": "first", "second": "second"}, work, stop=stopped.set)


def test_a_host_that_is_not_there(tmp_path) -> None:
    with connect([*HERE, HostSpec(name="far", address="127.0.0.1", port=1)], LoginSettings(configs=())) as hosts:
        assert list(hosts.connections) == ["a", "b", "c"]
        assert hosts.failures["far"].message == "far: nothing answers at 127.0.0.1:1"
        assert set(hosts.each(lambda host: host.name).errors) == {"far"}
        with pytest.raises(HostUnreachable, match="nothing answers"):
            hosts["far"]


def test_a_configuration_that_cannot_be_read(tmp_path) -> None:
    config = tmp_path / "config"
    config.write_text("Host *\n  Port many\n")
    with connect([HostSpec(name="far", address="127.0.0.1")], LoginSettings(configs=(config,))) as hosts:
        assert "far: the configuration of ssh" in hosts.failures["far"].message
        assert "line 2" in hosts.failures["far"].message


def test_without_asyncssh_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments, **options):
        if name == "asyncssh" or name.startswith("longboat.clusters.hosts.logins"):
            raise ModuleNotFoundError("No module named 'asyncssh'", name="asyncssh")
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(Refused, match="hosts over SSH need asyncssh") as caught:
        connect([*HERE, HostSpec(name="far", address="far")])
    assert caught.value.hint == "pip install 'longboat[ssh]'"
