"""Attached runs: the log live, what happens to the run on stderr; Ctrl-C asks it to stop."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType

from longboat.cli.input.engine_option import placed
from longboat.cli.output.log_printer import LinePrinter
from longboat.cli.output.tables import show_metrics
from longboat.cli.output.terminal import clean, paint, say
from longboat.cli.output.times import show_duration
from longboat.core.errors import OUTPUT_WAITS, RUN_LOST_EXIT, RUN_STOPPED_EXIT, EngineError
from longboat.core.runs import LogQuery, RunStatus, latest_step
from longboat.core.words import counted
from longboat.engines.engine import Engine
from longboat.engines.shared.retry_policy import describe

FIRST_LOOK_S = 0.6  # a run here has started by then
LOOK_S = 1.0  # while it waits, starts or ends: somebody sits there and reads
CALM_LOOK_S = 15.0
"""Looks at a run that simply runs come less and less often, down to one in so long."""
SLOW_START_S = 10.0
"""A start that takes longer than most do (a cached image, small code) is told what it waits for."""
BEING_STARTED = "is being started"
"""Reason, on every engine, of a run whose first attempt is being made."""
SPARSE_S = 30.0
"""Where nothing can be drawn over, how far an import has come is a line that stays."""
LAST_LOOK_S = 0.1
"""A look that is under way when the run ends may hang: nobody waits for it longer."""


def attach(engine: Engine, run: RunStatus, *, ranks: int, quiet: bool) -> RunStatus:
    """Print the log until the run has ended; returns its final status."""
    printer = LinePrinter(prefixes=ranks > 1, attempts=None if quiet else run.retries + 1)
    printer.attempt = 0  # a first attempt that said nothing was one too
    with RunWatcher(engine, run, quiet=quiet, printer=printer) as watcher:
        if not quiet:
            size = f" ({counted(run.nodes, 'node')}, {counted(ranks, 'rank')})" if ranks > 1 else ""
            say(f"longboat: run {run.name}{size}" + (replay_words(run) if is_replay(run) else ""))
        try:
            for line in engine.logs(run.name, LogQuery(follow=True, pieces=True)):
                watcher.note_output(line.attempt)
                printer(line)
            printer.close()
        except EngineError as error:
            # The run goes on, and its exit code is the trainer's: a log that cannot be read changes nothing of that.
            say(f"longboat: the log of {run.name} cannot be shown: {clean(error.message)}; the run goes on")
        except OSError as error:
            raise told_of_run(error, run.name) from error
        ended = engine.wait(run.name)
    notify_of_end(engine, ended)
    if not quiet or is_untold(ended):
        summarise(ended, printer.say)
    return ended


def is_untold(run: RunStatus) -> bool:
    """Whether it failed without a rank that did, so that nothing in its log says why: its image, a timeout."""
    failure = run.attempts[-1].failure if run.attempts else None
    return run.phase == "failed" and (failure is None or failure.rank is None)


def notify_of_end(engine: Engine, ended: RunStatus) -> None:
    """Send the notices of a cluster's run; on this machine its supervisor does, whether somebody looks or not."""
    if engine.name == "local":
        return
    from longboat.engines.lifecycle.notices import notify_once
    from longboat.engines.shared.home import Home

    notify_once(Home(), ended, time.time(), lambda text: say(f"longboat: {text}"))


def is_replay(run: RunStatus) -> bool:
    """Whether a submission returned a run that existed before (same `--id`)."""
    return run.phase not in ("pending", "starting")


def replay_words(run: RunStatus) -> str:
    """The message for a run that existed before: nothing new is started."""
    if not run.is_final:
        return f" exists already and is {run.phase}: nothing new is started"
    age = f" {show_duration(time.time() - run.ended)} ago" if run.ended else ""
    ending = "was stopped" if run.phase == "stopped" else run.phase
    return f" exists already and {ending}{age}: nothing new is started"


def told_of_run(error: OSError, name: str) -> Exception:
    """The error for output that cannot be written, with the hint that the run itself goes on."""
    from longboat.cli.errors import lost_output, stdout_problem

    reason = None if isinstance(error, BrokenPipeError) or error.filename else stdout_problem()
    return error if reason is None else lost_output(reason, f"the run goes on: {placed(f'longboat logs -f {name}')}")


class RunWatcher:
    """A thread that reports changes of phase and passes Ctrl-C on: once stops, twice kills, three times leaves."""

    def __init__(self, engine: Engine, run: RunStatus, *, quiet: bool, printer: LinePrinter | None = None) -> None:
        self.engine = engine
        self.tell: Callable[[str], None] = printer.say if printer else say
        self.draw: Callable[[str], bool] = printer.draw if printer else lambda text: False
        self.shown = -1  # the attempt whose output was shown last
        self.ran = -1  # the last attempt that was seen running
        self.name = run.name
        self.quiet = quiet
        self.seen = ("", 0, "")
        self.changed = time.monotonic()
        self.told = ""
        self.counted, self.counted_at = "", 0.0
        self.is_waiting = False  # for room on a full disk
        self.interrupts = 0
        self.lock = threading.Lock()  # who shows the log looks too, when a new attempt speaks
        self.asked: SimpleQueue[str] = SimpleQueue()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.before: object = None
        self.term_before: object = None

    def __enter__(self) -> RunWatcher:
        self.before = signal.signal(signal.SIGINT, self.interrupted)
        self.term_before = signal.getsignal(signal.SIGTERM)
        if self.term_before == signal.SIG_DFL:  # whoever ignores it goes on to
            signal.signal(signal.SIGTERM, self.terminated)
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.quiet = True  # what it still looks at needs no words any more, nor does anybody wait for it
        self.asked.put("end")
        if kind is None:
            self.thread.join(LAST_LOOK_S)
        signal.signal(signal.SIGINT, self.before)  # type: ignore[arg-type]
        if self.term_before == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def note_output(self, attempt: int) -> None:
        """Mark this attempt as running before its output is printed; report the failure of the last one first."""
        if attempt > self.shown:
            self.shown = attempt
            if attempt and not self.quiet:
                with contextlib.suppress(Exception):  # as in `watch`
                    self.act("look")

    def interrupted(self, _number: int, _frame: FrameType | None) -> None:
        """Handle Ctrl-C in a signal handler: only SimpleQueue.put is safe there."""
        self.interrupts += 1
        if self.interrupts > 2:
            raise KeyboardInterrupt
        self.asked.put("kill" if self.interrupts == 2 else "stop")

    def terminated(self, number: int, _frame: FrameType | None) -> None:
        """Die of SIGTERM, as of `timeout`, and say what becomes of the run: also where little is said, for nothing else
        would tell. Written past Python's streams, which may be in use this moment."""
        follow, stop = placed(f"longboat logs -f {self.name}"), placed(f"longboat stop {self.name}")
        text = f"longboat: ended by SIGTERM; run {self.name} goes on\nhint: {follow} follows it, {stop} stops it\n"
        with contextlib.suppress(OSError):
            os.write(2, text.encode())
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def watch(self) -> None:
        delay = FIRST_LOOK_S
        while True:
            try:
                request = self.asked.get(timeout=delay)
            except Empty:
                request = "look"
            delay = min(2 * delay, CALM_LOOK_S) if self.seen[0] == "running" and request == "look" else LOOK_S
            if request == "end":
                return
            try:
                self.act(request)
            except Exception as error:  # a look that fails is not worth a word: the log is the main thing
                if request != "look":
                    self.tell(f"longboat: cannot stop {self.name}: {error}")

    def act(self, request: str) -> None:
        if request == "look":
            self.report(self.engine.status(self.name))
        elif request == "stop":
            self.tell(f"\nlongboat: stopping {self.name}; Ctrl-C again kills it")
            self.engine.stop(self.name)
        else:
            self.tell(f"\nlongboat: killing {self.name}")
            self.engine.stop(self.name, grace_s=0.0)

    def report(self, run: RunStatus) -> None:
        """Print changes of phase. A run that simply starts or runs needs no message."""
        with self.lock:
            self._report(run)

    def _report(self, run: RunStatus) -> None:
        if run.reason == BEING_STARTED:
            return
        self.tell_waiting_output(run)
        waits = run.phase in ("pending", "recovering") and not self.ran < run.attempt <= self.shown
        now = (run.phase, run.attempt, _words(run.reason) if waits else "")
        before, self.seen = self.seen, now
        if run.phase == "running":
            self.ran = run.attempt
        if self.quiet or run.is_final:
            if not self.quiet and run.attempt > before[1]:
                self.tell_failure(run)
            return
        if now == before:
            self.tell_slow_start(run)
            return
        self.changed, self.told, self.counted = time.monotonic(), "", run.reason if waits else ""
        self.draw("")  # what was shown there is over
        if now[:2] == before[:2] and not now[2]:
            return  # why it waited is over; what comes of that is said when it is there
        if run.attempt > before[1]:
            self.tell_failure(run)
        if waits and (run.reason or run.attempt <= before[1]):  # else why it waits was just said
            self.tell(f"longboat: {run.name} is {run.phase}{': ' if run.reason else ''}{clean(run.reason)}")
        elif run.attempt > max(before[1], self.shown):
            self.tell(
                f"longboat: {run.name} is {run.phase}, attempt {run.attempt + 1} of {run.retries + run.resizes + 1}"
            )
        elif before[0] == "pending":
            self.tell(f"longboat: {run.name} is {run.phase}")

    def tell_waiting_output(self, run: RunStatus) -> None:
        """Print that a full disk holds up the output, once: the log alone would look like a hang."""
        is_waiting = OUTPUT_WAITS in run.reason
        if is_waiting and not self.is_waiting and not self.quiet:
            self.tell(f"longboat: {run.name} is {run.phase}: {clean(run.reason)}")
        self.is_waiting = is_waiting

    def tell_slow_start(self, run: RunStatus) -> None:
        """Print why a start takes long, such as an image that cannot be pulled; once for each reason.

        Progress figures within the reason are redrawn in the bottom line of a terminal, and printed now and then
        elsewhere.
        """
        if run.phase not in ("pending", "starting", "recovering") or run.attempt <= self.shown:
            return
        if run.reason in ("", self.counted):
            return
        text = f"longboat: {run.name} is {run.phase}: {clean(run.reason)}"
        now = time.monotonic()
        if self.draw(text):
            return
        is_new = run.phase == "starting" and _words(run.reason) != self.told and now - self.changed >= SLOW_START_S
        if is_new or now - max(self.changed, self.counted_at) >= SPARSE_S:
            self.told, self.counted, self.counted_at = _words(run.reason), run.reason, now
            self.tell(text)

    def tell_failure(self, run: RunStatus) -> None:
        """Print why the last attempt failed, when the next one had begun before the failure was seen."""
        failure = next((attempt.failure for attempt in run.attempts if attempt.number == run.attempt - 1), None)
        if failure is not None and not run.reason.startswith(describe(failure)):
            self.tell(f"longboat: {run.name}: attempt {run.attempt} failed: {clean(describe(failure))}")


def _words(reason: str) -> str:
    """A reason without its figures, to compare reasons."""
    return re.sub(r"[\d.]+ ?(?:[KMGTP]?i?B\b)?", "", reason)


def summarise(run: RunStatus, tell: Callable[[str], None]) -> None:
    """Print the outcome and where to look next, on stderr."""
    lasted = show_duration(run.ended - run.started) if run.ended and run.started else None
    time = f" in {lasted}" if lasted else ""
    tries = f", attempt {run.attempt + 1} of {run.retries + run.resizes + 1}" if run.attempt else ""
    if run.phase == "succeeded":
        tell(f"longboat: {run.name} {paint('succeeded', 'green', sys.stderr)}{time}{tries}")
        if parts := closing_counts(run):
            tell(f"longboat: {clean(parts)}")
        if run.checkpoint:
            tell(f"longboat: newest checkpoint: {run.checkpoint}")
        return
    colour = "red" if run.phase == "failed" else "yellow"
    code = f" (exit code {run.exit_code})" if run.exit_code is not None else ""
    reason = f": {clean(run.reason)}" if run.reason else ""
    tell(f"longboat: {run.name} {paint(run.phase, colour, sys.stderr)}{time}{code}{tries}{reason}")
    if run.phase == "failed":
        tell(f"{paint('hint:', 'cyan', sys.stderr)} {placed(f'longboat explain {run.name}')}")


def closing_counts(run: RunStatus) -> str:
    """What took part, role by role, and how far it came; nothing to say of a run with a single role."""
    nodes: dict[str, set[str]] = {}
    for rank in run.ranks:
        nodes.setdefault(rank.role, set()).add(rank.node)
    if len(nodes) < 2:
        return ""
    counts = ", ".join(f"{len(names)} {role}" for role, names in nodes.items())
    metrics: dict[str, float] = {}
    for role in nodes:
        for name, value in latest_step(rank for rank in run.ranks if rank.role == role)[1].items():
            metrics.setdefault(name, value)
    reached = f"; step {run.step}" if run.step is not None else ""
    return f"{counts}{reached}{': ' if reached and metrics else ''}{show_metrics(metrics) if reached else ''}"


def exit_code(run: RunStatus) -> int:
    """The exit code of `longboat run` for an ended run: the trainer's own."""
    if run.exit_code is not None:
        return run.exit_code
    return {"succeeded": 0, "stopped": RUN_STOPPED_EXIT}.get(run.phase, RUN_LOST_EXIT)
