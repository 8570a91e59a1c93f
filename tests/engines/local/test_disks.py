"""A full disk, a read-only home, another user on the same machine: clear errors, nothing lost."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from longboat.core.errors import EngineError, LongboatError
from longboat.engines.local.engine import LocalEngine
from longboat.engines.local.queue.elastic_slot import ElasticSlot
from longboat.engines.local.queue.machine import Gpu
from longboat.engines.local.queue.slots import SlotTicket, free_gpus
from longboat.engines.local.supervise.processes import is_alive
from longboat.engines.shared.home import Home
from tests.conformance.places import open_local
from tests.engines.local.conftest import LocalJobs
from tests.engines.local.values import ask, machine

NOBODY = 65534
is_root = os.getuid() == 0
needs_root = pytest.mark.skipif(not is_root, reason="needs root, to be another user or to mount a small disk")
REAL = tuple(Gpu(id=f"GPU-{n}", index=n) for n in range(2))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[LocalJobs]:
    """The engine with its home on a disk of 4 MB."""
    disk = tmp_path / "small"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        with open_local(disk) as place:
            yield LocalJobs(place, disk)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with open(filler, "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            pass
    return filler


@needs_root
def test_a_full_disk_is_told_when_a_run_is_submitted(small_disk: LocalJobs) -> None:
    small_disk.run("print('before')", name="before")
    submission = small_disk.submission("print('new code')", name="full")
    without_code = small_disk.submission(run="true", name="full", workdir=None)
    filler = fill(small_disk.root)
    for each, words in ((submission, "the disk is full"), (without_code, "No space left on device")):
        with pytest.raises(LongboatError) as caught:
            small_disk.engine.submit(each)
        assert words in caught.value.message
        assert caught.value.hint
    assert [run.name for run in small_disk.engine.list()] == ["before"]
    assert small_disk.text("before") == "before\n"
    filler.unlink()
    assert small_disk.wait(small_disk.engine.submit(submission).name).phase == "succeeded"


@needs_root
def test_who_cannot_say_that_he_has_a_gpu_does_not_have_it(small_disk: LocalJobs) -> None:
    home, here = Home(small_disk.root), machine(*REAL)
    own = SlotTicket(home, run="own", number=1, requests=[ask(1)], priority=0)
    fill(small_disk.root)
    with pytest.raises(EngineError):
        own.try_start(here)
    assert not own.ticket.holds and [gpu.id for gpu in free_gpus(home, REAL)] == ["GPU-0", "GPU-1"]
    own.release()


@needs_root
def test_on_a_full_disk_an_elastic_run_keeps_its_size_and_gives_back_what_it_must(small_disk: LocalJobs) -> None:
    """To grow it has to say so first: others read what it holds."""
    home, here = Home(small_disk.root), machine(*REAL)
    own = ElasticSlot(home, run="own", number=1, requests=[ask(1), ask(1, 1)], priority=0)
    other = SlotTicket(home, run="other", number=2, requests=[ask(1)], priority=0)
    for each in (other, own):
        each.try_start(here)
    other.release()
    filler = fill(small_disk.root)
    assert own.grow(here) is None and (own.place, len(own.ticket.gpus)) == (0, 1)
    filler.unlink()
    assert own.grow(here) == 1 and len(own.ticket.gpus) == 2
    fill(small_disk.root)
    own.shrink(here, 0)
    assert (own.place, len(own.ticket.gpus)) == (0, 1)
    own.release()


@needs_root
@pytest.mark.parametrize("exit_code", [0, 7])
def test_a_disk_that_is_full_for_a_while_costs_no_line_and_no_exit_code(small_disk: LocalJobs, exit_code: int) -> None:
    code = f"""
import os, sys, time
print("ready", flush=True)
while not os.path.exists({str(small_disk.root / "filler")!r}): time.sleep(0.01)
for number in range(5000): print("line", number)
print("end", flush=True)
sys.exit({exit_code})
"""
    run = small_disk.submit(code)
    small_disk.until_said(run.name, "ready")
    small_disk.until_phase(run.name, "running")
    filler = fill(small_disk.root)
    with pytest.raises(LongboatError):
        small_disk.engine.wait(run.name, timeout_s=1.5)
    assert "is full: output waits until there is room" in small_disk.engine.status(run.name).reason
    assert "is full" in small_disk.engine.explain(run.name).headline
    filler.unlink()
    ended = small_disk.wait(run.name)
    assert (ended.phase, ended.exit_code) == ("failed" if exit_code else "succeeded", exit_code), ended.reason
    assert "full" not in ended.reason
    assert small_disk.text(run.name).splitlines() == ["ready", *(f"line {n}" for n in range(5000)), "end"]


@needs_root
def test_on_a_full_disk_a_run_can_be_stopped_and_removed(small_disk: LocalJobs) -> None:
    """What fills the disk is often the run itself: nothing else could make room."""
    code = """
import longboat, time
with longboat.checkpoint(1) as folder: open(f"{folder}/w", "w").write("1")
print("ready", flush=True)
while True: print("line" * 100)
"""
    run = small_disk.submit(code, grace=0.1)
    small_disk.until_said(run.name, "ready")
    small_disk.until_phase(run.name, "running")
    fill(small_disk.root)
    small_disk.engine.stop(run.name)
    ended = small_disk.wait(run.name)
    assert (ended.phase, ended.reason) == ("stopped", "stopped on request")
    assert not (small_disk.files(run.name).directory / "crash.txt").exists()
    fill(small_disk.root)
    small_disk.engine.delete(run.name)
    assert not list(small_disk.engine.list())
    assert small_disk.engine.kept_checkpoints(run.name)


def as_nobody(work: Callable[[], object]) -> str:
    """What the work returned, or raised, as another user."""
    fork = multiprocessing.get_context("fork")
    answers = fork.SimpleQueue()

    def child() -> None:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        try:
            answers.put(str(work()))
        except LongboatError as error:
            answers.put(f"{type(error).__name__}: {error.message} / {error.hint}")

    process = fork.Process(target=child)
    process.start()
    process.join()
    assert process.exitcode == 0
    return str(answers.get())


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """A folder that every user can reach."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder == Path("/tmp") or not os.access(folder, os.W_OK):
            break
        folder.chmod(folder.stat().st_mode | 0o055)
    return tmp_path


@needs_root
def test_a_home_that_cannot_be_written(open_folder: Path) -> None:
    home = open_folder / "home"
    home.mkdir(mode=0o555)
    os.chown(home, NOBODY, NOBODY)
    answer = as_nobody(lambda: Home(home).prepare())
    assert answer.startswith("EngineError: cannot create") and "Permission denied" in answer
    assert "LONGBOAT_HOME" in answer
    below = as_nobody(lambda: Home(home / "not" / "yet").prepare())
    assert "Permission denied" in below and "LONGBOAT_HOME" in below


@needs_root
def test_the_home_of_another_user(open_folder: Path) -> None:
    home = open_folder / "home"
    home.mkdir(mode=0o777)
    home.chmod(0o777)
    answer = as_nobody(lambda: Home(home).prepare())
    assert answer.startswith("EngineError") and "another user" in answer and "LONGBOAT_HOME" in answer


@needs_root
def test_two_users_share_the_real_gpus(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = open_folder / "slots"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setenv("LONGBOAT_SLOTS", str(shared))
    theirs = open_folder / "theirs"
    theirs.mkdir()
    os.chown(theirs, NOBODY, NOBODY)

    def try_one() -> object:
        queue = SlotTicket(Home(theirs), run="theirs", number=1, requests=[ask(1)], priority=0)
        try:
            choice, _ = queue.try_start(machine(*REAL))
            return choice.reason if choice.place is None else None
        finally:
            queue.release()

    assert as_nobody(try_one) == "None"  # it makes the lock files, which then belong to it
    mine = SlotTicket(Home(open_folder / "mine"), run="mine", number=1, requests=[ask(2)], priority=0)
    assert mine.try_start(machine(*REAL))[0].place == 0
    assert as_nobody(try_one) == "waits for 1 GPU (0 free)"
    mine.release()
    assert as_nobody(try_one) == "None"
    assert {path.stat().st_uid for path in shared.iterdir()} == {NOBODY}


def test_a_home_on_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    engine = LocalEngine(tmp_path / "file", environment=dict(os.environ))
    for use in (lambda: list(engine.list()), engine.home.prepare):
        with pytest.raises(EngineError, match="is no folder") as caught:
            use()
        assert caught.value.hint


@needs_root
def test_a_read_only_disk(small_disk: LocalJobs) -> None:
    small_disk.run("print('kept')", name="kept")
    submission = small_disk.submission("print(1)", name="new")
    small_disk.until(lambda: not is_alive(small_disk.supervisor("kept")), "the supervisor has closed its files")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk.root)], check=True)
    try:
        assert [run.name for run in small_disk.engine.list()] == ["kept"]
        assert small_disk.text("kept") == "kept\n"
        assert small_disk.engine.status("kept").exit_code == 0
        with pytest.raises(LongboatError) as caught:
            small_disk.engine.submit(submission)
        assert "read-only" in caught.value.message and caught.value.hint
        with pytest.raises(LongboatError, match="Read-only"):
            small_disk.engine.delete("kept")
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(small_disk.root)], check=True)
    small_disk.engine.delete("kept")
