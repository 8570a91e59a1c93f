"""The power fails while a run is submitted, runs and ends: what had been said is still true afterwards.

A real run is recorded call by call (`power`), and the disk is laid out as it might be after each sync and each rename.
The machine restarts with that: its engine finds the run, never starts a second time what had begun, and tells an end
that it had told before.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from longboat.bundles.durable import boot_id
from longboat.core.runs import LogQuery, RunStatus
from longboat.engines.local.engine import LocalEngine
from tests.engines.local.power import COMMAND, Disk, read_trace
from tests.launcher.nodes import until

OTHER_BOOT = "00000000-1111-2222-3333-444444444444"
DRIVER = """
import os, sys, time
from pathlib import Path
from longboat.engines.local.engine import LocalEngine
from longboat.engines.engine import Submission
from longboat.specs.read import read_job

home, marks, code, fields = Path(sys.argv[1]), sys.argv[2], sys.argv[3], eval(sys.argv[4])
engine = LocalEngine(home, environment=dict(os.environ))
loaded = read_job([], fields={"name": "job", **fields}, environment=dict(os.environ), cwd=Path(code))
engine.submit(Submission(job=loaded.job, base=loaded.base, environment=dict(os.environ)))
os.mkdir(marks + "/submitted")
while not os.path.exists(marks + "/executed"):
    time.sleep(0.01)
open(marks + "/go", "w").close()
while not (ended := engine.status("job")).is_final:
    if ended.attempt and not os.path.exists(marks + "/retrying"):
        os.mkdir(marks + "/retrying")
    time.sleep(0.02)
os.mkdir(marks + "/ended-%s" % engine.wait("job").exit_code)
"""
# Each execution leaves a folder, which the trace shows; the first one waits until it has been seen.
JOB = """
import os, sys, time
marks = os.environ["MARKS"]
print("said", flush=True)
number = len([name for name in os.listdir(marks) if name.startswith("executed")])
os.mkdir(f"{marks}/executed-{number}" if number else f"{marks}/executed")
while not os.path.exists(f"{marks}/go"):
    time.sleep(0.01)
sys.exit(int(os.environ["CODE"]))
"""

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed: it records the calls")


class Recording:
    """One run from submit to end, and the disk after each of its calls."""

    def __init__(self, root: Path, code: int, **fields: object) -> None:
        self.home, self.marks, self.code = root / "home", root / "marks", root / "code"
        for folder in (self.marks, self.code):
            folder.mkdir()
        (self.code / "train.py").write_text(JOB)
        (self.code / "driver.py").write_text(DRIVER)
        self.environment = {**os.environ, "LONGBOAT_HOME": str(self.home)}
        self.environment.pop("LONGBOAT_SYNC", None)
        own = {"MARKS": str(self.marks), "CODE": str(code)}  # of the job: that of the submission goes with the memory
        given = {"run": [sys.executable, "train.py"], "exclude": ["driver.py"], "grace": "2s", "env": own, **fields}
        arguments = [str(self.home), str(self.marks), str(self.code), repr(given)]
        trace = root / "trace"
        done = subprocess.run(
            [*COMMAND, "-o", str(trace), sys.executable, str(self.code / "driver.py"), *arguments],
            env=self.environment, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        if "ptrace" in done.stderr or "Operation not permitted" in done.stderr:
            pytest.skip("strace may not trace processes here")
        assert done.returncode == 0, done.stderr
        self.calls = read_trace(trace)
        self.live = {str(path): path.read_bytes() for path in self.home.rglob("*") if path.is_file()}
        shutil.rmtree(self.home)

    def restart(self, position: int, *, names: bool) -> tuple[set[str], RunStatus | None, str]:
        """The power fails after this call: what had happened by then, and what the next boot makes of it."""
        disk, happened = Disk(self.home), set()
        for call in self.calls[: position + 1]:
            disk.apply(call)
            if call.name == "mkdir" and call.paths()[0].startswith(str(self.marks)):
                happened.add(os.path.basename(call.paths()[0]))
        self._await_supervisors()
        shutil.rmtree(self.home, ignore_errors=True)
        disk.lay_out(self.home, self.live, names=names)
        self._as_of_another_boot()
        for mark in self.marks.iterdir():
            mark.rmdir() if mark.is_dir() and mark.name not in happened else None
        engine = LocalEngine(self.home, environment=self.environment)
        if not engine.list():
            return happened, None, ""
        ended = engine.wait("job", timeout_s=120)
        text = b"".join(line.data for line in engine.logs("job", LogQuery()))
        engine.explain("job")
        return happened, ended, text.decode()

    def _await_supervisors(self) -> None:
        """One that has told the end gives back its place in the queue yet, which is to be that of its own disk."""
        until(lambda: not any(str(self.home).encode() in words for words in command_lines()))

    def _as_of_another_boot(self) -> None:
        now = (boot_id() or "-").encode()
        for path in self.home.rglob("*"):
            if path.is_file() and not path.is_symlink():
                path.write_bytes(path.read_bytes().replace(now, OTHER_BOOT.encode()))

    def executions(self) -> int:
        return len([mark for mark in self.marks.iterdir() if mark.name.startswith("executed")])

    def moments(self) -> list[int]:
        """After each call that may change what the disk holds at worst, and after each thing that was told."""
        disk = Disk(self.home)
        found = []
        for number, call in enumerate(self.calls):
            is_mark = call.name == "mkdir" and call.paths()[0].startswith(str(self.marks))
            if disk.apply(call) or is_mark:
                found.append(number)
        return found


def command_lines() -> Iterator[bytes]:
    """Of all processes that there are now."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield entry.read_bytes()


def is_worth(call_names: Mapping[int, str], moments: list[int]) -> list[int]:
    """Of moments in a row without a sync between them only the last: a later one has lost no more than an earlier."""
    return [
        moment
        for moment, following in zip(moments, [*moments[1:], -1], strict=True)
        if call_names[moment] in ("fsync", "mkdir") or following == -1 or call_names[following] in ("fsync", "mkdir")
    ]


@pytest.mark.parametrize(("code", "names"), [(0, False), (7, True)], ids=["names are lost", "names are there"])
def test_at_every_moment_of_a_run(tmp_path: Path, code: int, names: bool) -> None:
    recording = Recording(tmp_path, code)
    moments = is_worth({number: call.name for number, call in enumerate(recording.calls)}, recording.moments())
    assert len(moments) > 10
    seen = set()
    for moment in moments:
        happened, ended, text = recording.restart(moment, names=names)
        where = f"after call {moment}: {recording.calls[moment].name} {recording.calls[moment].arguments[-200:]}"
        seen |= happened
        if "submitted" in happened:
            assert ended is not None, f"{where}: a submitted run is gone"
        if ended is None:
            continue
        assert ended.is_final and recording.executions() <= 1, f"{where}: it ran twice"
        if f"ended-{code}" in happened:
            assert (ended.phase, ended.exit_code) == ("failed" if code else "succeeded", code), where
            assert text == "said\n", where
        else:
            assert ended.exit_code in (208, code), f"{where}: {ended.reason}"
    assert {"submitted", "executed", f"ended-{code}"} <= seen


def test_a_retry_that_was_told_is_made_and_counted(tmp_path: Path) -> None:
    """How an attempt had ended stays known: only that failure may be tried again here, and a lost one may not."""
    recording = Recording(tmp_path, 7, retries={"count": 1, "on": [7], "backoff": "1s"})
    moments = is_worth({number: call.name for number, call in enumerate(recording.calls)}, recording.moments())
    told = 0
    retrying = next(n for n, call in enumerate(recording.calls) if any(p.endswith("/retrying") for p in call.paths()))
    later = [moment for moment in moments if moment >= retrying]
    for moment in (*later[:-1:3], later[-1]):
        happened, ended, _ = recording.restart(moment, names=True)
        told += 1
        assert ended is not None and ended.is_final
        assert recording.executions() <= 2, (moment, happened, ended)
        first = ended.attempts[0].failure
        assert first is not None and first.exit_code == 7 and len(ended.attempts) == 2, (moment, ended.attempts)
        if "ended-7" in happened:
            assert (ended.exit_code, ended.attempt) == (7, 1)
    assert told > 2
