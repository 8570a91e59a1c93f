"""Places as file locks: real locks, in this process and in others that are killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from longboat.core.errors import EngineError
from longboat.engines.local.queue import slots
from longboat.engines.local.queue.elastic_slot import ElasticSlot
from longboat.engines.local.queue.machine import Gpu, LocalMachine
from longboat.engines.local.queue.slots import Ports, SlotTicket, discard_ticket, openings_of
from longboat.engines.local.submit.submission import take_number
from longboat.engines.shared.home import Home
from tests.engines.local.values import ask, machine

STATED = tuple(Gpu(id=f"g{n}", index=n, is_stated=True) for n in range(2))
REAL = tuple(Gpu(id=f"GPU-{n}", index=n) for n in range(2))


def waits(ticket: SlotTicket, here: LocalMachine) -> str | None:
    """What it waits for; None: it has started."""
    choice, _ = ticket.try_start(here)
    return choice.reason if choice.place is None else None


def queue(home: Home, run: str, *gpus: int, number: int | None = None) -> SlotTicket:
    return SlotTicket(
        home, run=run, number=take_number(home) if number is None else number, requests=[ask(*gpus)], priority=0
    )


def names(given: list[tuple[Gpu, ...]]) -> list[str]:
    return [gpu.id for node in given for gpu in node]


def test_gpus_go_out_whole_and_come_back(tmp_path: Path) -> None:
    home, here = Home(tmp_path), machine(*STATED)
    one, two, three = queue(home, "one", 1), queue(home, "two", 1), queue(home, "three", 1)
    assert waits(one, here) is None and waits(two, here) is None
    assert sorted([*one.ticket.gpus, *two.ticket.gpus]) == ["g0", "g1"]
    choice, given = three.try_start(here)
    reason = choice.reason
    assert reason == "waits for 1 GPU (0 free); held by one, two" and given == []
    assert three.waiting() == ["three"]
    two.release()
    assert waits(three, here) is None
    for each in (one, three):
        each.release()
    assert [path.name for path in (tmp_path / "queue").iterdir() if not path.name.startswith(".")] == []


def test_a_look_at_the_queue_takes_nothing(tmp_path: Path) -> None:
    home, here = Home(tmp_path), machine(*STATED)
    large, small = queue(home, "large", 3), queue(home, "small", 2)
    assert waits(large, here) is not None
    assert waits(small, here) == "waits for 2 GPUs (2 free, kept for large)"
    assert openings_of(home, here, "small") == (
        "it would start now with a higher priority: longboat priority small 1",
        "it starts when large before it has ended",
    )
    large.release()
    assert names(small.try_start(here)[1]) == ["g0", "g1"]
    small.release()


def hold(home: Path, ready: object) -> None:
    own = queue(Home(home), "holder", 2)
    own.try_start(machine(*STATED))
    ready.set()  # type: ignore[attr-defined]
    time.sleep(600)


def test_a_killed_holder_frees_its_gpus_and_its_ticket(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    ready = fork.Event()
    holder = fork.Process(target=hold, args=(tmp_path, ready))
    holder.start()
    ready.wait()
    waiter = queue(Home(tmp_path), "waiter", 1)
    assert "held by holder" in (waits(waiter, machine(*STATED)) or "")
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    assert waits(waiter, machine(*STATED)) is None
    assert not (tmp_path / "queue" / "holder.json").exists()
    waiter.release()


def test_a_successor_keeps_the_place_of_a_killed_one(tmp_path: Path) -> None:
    home, here = Home(tmp_path), machine(*STATED)
    holder = queue(home, "holder", 2)
    holder.try_start(here)
    first, second = queue(home, "first", 2), queue(home, "second", 2)
    os.close(first._lock)  # as if its process had died
    second.try_start(here)
    assert not (tmp_path / "queue" / "first.json").exists()
    successor = queue(home, "first", 2, number=first.ticket.number)
    holder.release()
    assert waits(second, here) is not None
    assert waits(successor, here) is None
    for each in (successor, second):
        each.release()


@pytest.mark.parametrize("damage", [b"", b"{", b'{"run": 3}', b"\xff\xfe"])
def test_a_damaged_ticket_or_counter_stops_nobody(tmp_path: Path, damage: bytes) -> None:
    home = Home(tmp_path)
    first = queue(home, "first", 1)
    (tmp_path / "queue" / "other.json").write_bytes(damage)
    (tmp_path / "queue" / ".next").write_bytes(damage)
    assert waits(first, machine(*STATED)) is None
    assert waits(queue(home, "second", 1), machine(*STATED)) is None


def test_locks_of_real_gpus_are_shared_by_all_homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "slots"
    monkeypatch.setenv("LONGBOAT_SLOTS", str(shared))
    mine, theirs = queue(Home(tmp_path / "a"), "mine", 2), queue(Home(tmp_path / "b"), "theirs", 1)
    assert waits(mine, machine(*REAL)) is None
    assert waits(theirs, machine(*REAL)) == "waits for 1 GPU (0 free)"
    mine.release()
    assert waits(theirs, machine(*REAL)) is None
    theirs.release()


def test_stated_gpus_belong_to_their_home(tmp_path: Path) -> None:
    for home in ("a", "b"):
        assert waits(queue(Home(tmp_path / home), "run", 2), machine(*STATED)) is None


def test_a_link_in_the_place_of_a_lock_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGBOAT_SLOTS", str(tmp_path / "slots"))
    own = queue(Home(tmp_path / "home"), "run", 1)
    own.try_start(machine(REAL[0]))
    own.release()
    (lock,) = (tmp_path / "slots").iterdir()
    lock.unlink()
    victim = tmp_path / "victim"
    victim.write_text("precious")
    lock.symlink_to(victim)
    with pytest.raises(EngineError):
        queue(Home(tmp_path / "home"), "other", 1).try_start(machine(REAL[0]))
    assert victim.read_text() == "precious"


def test_ports_are_given_out_once(tmp_path: Path) -> None:
    home = Home(tmp_path)
    one, two = Ports(), Ports()
    first, second = one.take(home, [3, 30]), two.take(home, [2])
    given = [port for node in (*first, *second) for port in node]
    assert [len(node) for node in (*first, *second)] == [3, 30, 2]
    assert len(set(given)) == 35
    for port in given:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
    one.release()
    two.release()


def test_a_port_in_use_is_passed_over(tmp_path: Path) -> None:
    home = Home(tmp_path)
    first = Ports()
    (port,) = first.take(home, [1])[0]
    first.release()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        second = Ports()
        assert port not in second.take(home, [1])[0]
        second.release()


def test_too_many_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "PORTS", range(20000, 20032))
    with pytest.raises(EngineError, match="not enough free ports"):
        Ports().take(Home(tmp_path), [33])


def test_a_run_that_cannot_be_read_keeps_nobody_from_a_number_after_a_restart(tmp_path: Path) -> None:
    home = Home(tmp_path)
    (home.runs / "odd" / "record.json").mkdir(parents=True)  # or of another user, or gone since it was listed
    (home.folder("queue") / ".next").write_text("an-earlier-boot 7")
    assert take_number(home) == 7


def test_numbers_only_grow_and_a_deleted_runs_ticket_goes(tmp_path: Path) -> None:
    home = Home(tmp_path)
    discard_ticket(home, "nobody")
    assert [take_number(home) for _ in range(3)] == [1, 2, 3]
    own = queue(home, "own", 1)
    os.close(own._lock)
    (tmp_path / "queue" / "own.json.123.tmp").touch()
    discard_ticket(home, "own")
    other = queue(home, "other", 1)
    assert waits(other, machine(*STATED)) is None
    other.release()
    assert sorted(path.name for path in (tmp_path / "queue").iterdir()) == [".lock", ".next"]


def elastic(home: Home, run: str, *counts: int) -> ElasticSlot:
    requests = [ask(*[1] * count) for count in counts]
    return ElasticSlot(home, run=run, number=take_number(home), requests=requests, priority=0)


def test_an_elastic_run_takes_more_and_gives_back(tmp_path: Path) -> None:
    home = Home(tmp_path)
    here = machine(*(Gpu(id=f"g{n}", index=n, is_stated=True) for n in range(4)))
    holder = queue(home, "holder", 2)
    assert waits(holder, here) is None
    own = elastic(home, "own", 1, 2, 3)
    choice, given = own.try_start(here)
    assert (choice.place, own.place, len(names(given))) == (1, 1, 2) and choice.reason
    assert own.room(here) is None and own.grow(here) is None
    holder.release()
    assert own.room(here) == 2 and own.place == 1
    assert own.grow(here) == 2 and len(own.ticket.gpus) == 3 and set(own.ticket.gpus) > set(names(given))
    later = queue(home, "later", 2)
    assert waits(later, here) is not None and own.asked_back(here) is None
    later.change_priority(1)
    assert own.asked_back(here) == "later"
    own.shrink(here, 0)
    assert own.place == 0 and len(own.ticket.gpus) == 1
    assert waits(later, here) is None and own.asked_back(here) is None
    shares = own.gpus_per_node(here)
    assert shares is not None and names(shares) == list(own.ticket.gpus)
    assert own.gpus_per_node(machine()) is None
    for each in (own, later):
        each.release()
