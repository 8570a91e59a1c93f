"""What every test may use, and the house rules that hold for all of them.

- `home`: a LONGBOAT_HOME of the test's own, exported.
- Kinds of tests are markers (`frameworks`, `cluster`, ...). A kind that is skipped says why in one line of the summary;
  a kind named in LONGBOAT_TEST_REQUIRE (names separated by commas or blanks) may not be skipped.
- When the session ends no process started by a test may be left: it is killed, named, and the session fails.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import uuid
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings

settings.register_profile("longboat", deadline=None)  # a machine with other work to do is no failure
settings.load_profile("longboat")

pytest_plugins = ["testbed.fixtures"]  # cluster, namespace, kubectl, kwok_nodes, api_proxy, registry, hosts, podman

KINDS = ("cluster", "pods", "hosts", "frameworks", "stores", "podman", "clouds", "browser", "slow")
SESSION_MARK = "TEST_SESSION_OF_LONGBOAT"  # not LONGBOAT_*: those are kept from ranks
LEAVING_S = 10.0
SOAK_LIST = Path(__file__).with_name("soak.txt")

SESSION = pytest.StashKey[str]()
RAN = pytest.StashKey[set[str]]()
COMPLAINTS = pytest.StashKey[list[str]]()

if os.environ.get("LONGBOAT_TEST_SOAK"):
    os.environ.setdefault("PYTEST_TIMEOUT", "2400")  # whole clusters come and go within one test


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A LONGBOAT_HOME of this test's own, exported to everything the test starts."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("LONGBOAT_HOME", str(folder))
    return folder


def required_kinds() -> frozenset[str]:
    names = frozenset(os.environ.get("LONGBOAT_TEST_REQUIRE", "").replace(",", " ").split())
    unknown = sorted(names - set(KINDS))
    if unknown:
        told = f"LONGBOAT_TEST_REQUIRE names no kind of test: {', '.join(unknown)}; kinds: {', '.join(KINDS)}"
        raise pytest.UsageError(told)
    return names


def pytest_configure(config: pytest.Config) -> None:
    required_kinds()
    # A shell that starts us with & has these ignored, and so would be the tests' children.
    for number in (signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    # As in an activated environment: ranks find `python` on PATH, and tests' trainers need what is installed here.
    own = str(Path(sys.executable).parent)
    if own not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([own, os.environ.get("PATH", os.defpath)])
    mark = getattr(config, "workerinput", {}).get("longboat_session") or uuid.uuid4().hex
    config.stash[SESSION] = mark
    # Set while running and not above xdist's workers: every child of a test carries it and no pytest process does.
    if getattr(config.option, "dist", "no") == "no" or hasattr(config, "workerinput"):
        os.environ[SESSION_MARK] = mark


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["longboat_session"] = node.config.stash[SESSION]


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: Any, sched: Any) -> None:
    """Names a test at once whose worker died or hung beyond its limit: a run that is cut off later has no summary."""
    print(f"\nits worker was lost: {crashitem}", file=sys.stderr, flush=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes long is left out unless asked for: `make soak`."""
    lines = [line.strip() for line in SOAK_LIST.read_text().splitlines()]
    listed = tuple(line for line in lines if line and not line.startswith("#"))
    for item in items:
        if item.nodeid.startswith(listed):
            item.add_marker(pytest.mark.soak)
    if os.environ.get("LONGBOAT_TEST_SOAK"):
        return
    left_out = [item for item in items if item.get_closest_marker("soak")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("soak")]


def kinds_of(keywords: Any) -> list[str]:
    return [kind for kind in KINDS if kind in keywords]


def skip_reason(report: Any) -> str:
    longrepr = report.longrepr
    text = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    return str(text).removeprefix("Skipped: ").strip() or "no reason given"


def refuse_skip(report: Any, kinds: list[str]) -> None:
    """A skip of a required kind is a failure."""
    missed = sorted(required_kinds().intersection(kinds))
    if missed:
        reason = skip_reason(report)
        report.outcome = "failed"
        report.longrepr = f"skipped, but LONGBOAT_TEST_REQUIRE names {', '.join(missed)}: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        refuse_skip(report, kinds_of(item.keywords))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """A whole file that is skipped has no markers yet: its path tells its kind."""
    report = yield
    if report.skipped:
        refuse_skip(report, kinds_of(Path(collector.nodeid.replace("test_", "")).with_suffix("").parts))
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    reasons: dict[str, dict[str, int]] = {}
    for report in terminalreporter.stats.get("skipped", []):
        for kind in kinds_of(report.keywords) or ["other"]:
            counts = reasons.setdefault(kind, {})
            reason = skip_reason(report)
            counts[reason] = counts.get(reason, 0) + 1
    for kind, counts in reasons.items():
        told = "; ".join(f"{reason} ({count})" for reason, count in counts.items())
        terminalreporter.write_line(f"skipped {kind}: {told}")
    for line in config.stash.get(COMPLAINTS, []):
        terminalreporter.write_line(line, red=True)


def is_whole_suite(config: pytest.Config) -> bool:
    chosen = config.option.keyword or config.option.markexpr or getattr(config.option, "lf", False)
    return not chosen and not config.option.collectonly and list(config.args) == list(config.getini("testpaths"))


class Leftover(NamedTuple):
    pid: int
    home: str
    command: str


def leftovers(mark: str) -> list[Leftover]:
    """Processes that a test of this session started, as far as /proc tells (none are found elsewhere)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if f"{SESSION_MARK}={mark}".encode() not in environment:
            continue
        home = next((e[14:].decode(errors="replace") for e in environment if e.startswith(b"LONGBOAT_HOME=")), "")
        found.append(Leftover(int(entry.name), home, command[:200]))
    return [left for left in found if left.pid != os.getpid()]


def end_leftovers(mark: str) -> list[str]:
    """Give what a test left behind a moment to leave, then kill it; one line for each that had to be killed."""
    deadline = time.monotonic() + LEAVING_S
    while leftovers(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    complaints = []
    for left in leftovers(mark):
        try:
            os.kill(left.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        complaints.append(f"left behind, killed: pid {left.pid}, LONGBOAT_HOME={left.home or '-'}: {left.command}")
    return complaints


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if hasattr(config, "workerinput"):
        return
    complaints = end_leftovers(config.stash[SESSION])
    if is_whole_suite(config):
        never_ran = required_kinds() - config.stash.get(RAN, set())
        complaints += [f"LONGBOAT_TEST_REQUIRE names {kind}, and no such test ran" for kind in sorted(never_ran)]
    config.stash[COMPLAINTS] = complaints
    if complaints and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


class Ran:
    """Remembers which kinds of tests have run, also those that ran in a worker."""

    def __init__(self, config: pytest.Config) -> None:
        self.kinds = config.stash.setdefault(RAN, set())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.kinds.update(kinds_of(report.keywords))


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.pluginmanager.register(Ran(session.config))
