"""One node of a run from its first to its last moment: setup, peers, ranks, end. The only module that knows the order."""

from __future__ import annotations

import os
import sys
import time

from . import environment, processes
from .beats import Beats
from .gang import Gang
from .jsonfiles import read_json, write_json
from .loop import Loop
from .plan import Plan, PlanError, read_plan
from .preparing import prepare
from .ranks import Rank
from .state import Failure, State

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

LEFTOVERS_S = 1.0
FULL_DISK_S = 60.0
UNKILLABLE_S = 30.0
EXIT_INTERNAL, EXIT_USAGE, EXIT_ENGINE, EXIT_HANG = 200, 201, 205, 210


def main(argv: list[str]) -> int:
    if len(argv) != 1:
        sys.stderr.write("usage: launcher PLAN.json\n")
        return EXIT_USAGE
    try:
        plan = read_plan(argv[0])
    except PlanError as error:
        sys.stderr.write("longboat launcher: %s\n" % error)
        return EXIT_INTERNAL
    try:
        return Node(plan).run()
    except OSError as error:
        sys.stderr.write("longboat launcher: %s: %s\n" % (error.filename or plan.directory, error.strerror))
        return EXIT_ENGINE


class Node:
    def __init__(self, plan: Plan) -> None:
        for folder in ("logs", "pipes", "steps"):
            os.makedirs(os.path.join(plan.directory, folder), exist_ok=True)
        self.plan = plan
        self.loop = Loop()
        self.state = State(plan, self.loop)

    def run(self) -> int:
        """Everything, in order. Returns the exit code."""
        state, plan = self.state, self.plan
        write_json(state.path("launcher.json"), processes.identity(os.getpid()))
        self.loop.on_signal = self._signalled
        self.loop.listen((signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2))
        self._hold_lifeline()
        self.has_subreaper = processes.become_subreaper()
        os.chdir(plan.workdir)
        environment.provide_package(plan)
        state.env = environment.node_environment(plan, dict(os.environ))
        self.beats = Beats(state)
        self.beats.start()
        prepare(state)
        gang = None if state.is_over else Gang(state)
        if gang is not None:
            state.phase = "running"
            gang.start()
            self.beats.watch(self._hung)
        while state.running or state.is_asking:
            self.loop.turn()
        self._sweep()
        self._drain()
        if gang is not None:
            gang.rewrite_reports()
        return self._finish()

    def _hold_lifeline(self) -> None:
        try:
            descriptor = int(os.environ.pop(environment.LIFELINE, ""))
            os.set_inheritable(descriptor, False)
            os.set_blocking(descriptor, False)
        except (ValueError, OSError):
            return

        def look() -> None:
            try:
                if os.read(descriptor, 4096):
                    return
            except BlockingIOError:
                return
            except OSError:
                pass
            self.loop.unwatch(descriptor)
            self._end("lost", self.plan.grace_s)

        self.loop.watch(descriptor, look)

    def _signalled(self, number: int) -> None:
        if number == signal.SIGUSR1:
            self._hung(None)
        elif number == signal.SIGUSR2:
            reason, grace_s = self._told()
            self._end(reason, grace_s)
        else:
            self._end("stop", self.plan.grace_s)

    def _told(self) -> tuple[str, float]:
        """Reason and grace in ending.json; without the file another node has failed."""
        try:
            told = read_json(self.state.path("ending.json"))
            grace_s = told.get("grace_s")
            return str(told.get("reason") or "failure"), self.plan.grace_s if grace_s is None else float(grace_s)
        except (OSError, ValueError, AttributeError, TypeError):
            return "failure", self.plan.grace_s

    def _end(self, reason: str, grace_s: float) -> None:
        if self.state.end_by(reason):
            self.state.terminate(grace_s)

    def _hung(self, rank: Rank | None) -> None:
        """Take every rank's stacks, then end them all."""
        state = self.state
        silent = (rank.rank, rank.silent_s()) if rank else self.beats.stalled
        if not state.end_by("hang"):
            return
        from .dump import take_stacks
        from .stacks import describe

        state.failure = failure = Failure("hang", EXIT_HANG, "")
        state.is_asking = True

        def taken() -> None:
            failure.message = describe({each.rank: each.stacks for each in state.ranks if each.stacks}, silent)
            state.is_asking = False
            state.terminate(self.plan.grace_s)

        take_stacks(state, taken)

    def _sweep(self) -> None:
        """End what the first processes left behind: the rest of the grace when they were told to end, else a moment."""
        state = self.state
        self.loop.reap()
        if not self.has_subreaper:
            self._sweep_outside()
        if not self.loop.has_children:
            return
        for pid in processes.tree(os.getpid())[1:]:
            group = processes.stat_fields(pid)[2:3]
            if state.ending is None or not group or int(group[0]) not in state.groups:
                processes.send(pid, signal.SIGTERM)
        if state.ending is None:
            self.loop.after("kill", LEFTOVERS_S, state.kill)
        given_up: list[bool] = []
        while self.loop.has_children and not given_up:
            if state.killing:
                self.loop.after("give up", UNKILLABLE_S, lambda: given_up.append(True))
                state.killing = False
            self.loop.turn()
        if given_up:
            state.say("cannot be killed: %s" % ", ".join(map(str, processes.tree(os.getpid())[1:])))

    def _sweep_outside(self) -> None:
        """Without a sub-reaper: whole groups, and whoever carries this node's variables."""
        for group in self.state.groups:
            processes.send_group(group, signal.SIGKILL)
        for pid in processes.carriers(environment.marks(self.plan)):
            processes.send(pid, signal.SIGKILL)

    def _drain(self) -> None:
        """Everything the ranks wrote is in the logs before the outcome is told; a full disk gets time to be cleared."""
        state = self.state
        for name in ("kill", "memory", "stall", "give up"):
            self.loop.cancel(name)
        over: list[bool] = []
        self.loop.after("full disk", FULL_DISK_S, lambda: over.append(True))
        for stream in state.streams:
            while stream.move() or (stream.problem and not over):
                if stream.problem:
                    self.loop.turn()
            if stream.problem:
                state.say("the end of %s is lost: %s" % (stream.log, stream.problem))
        self.loop.cancel("full disk")
        if state.echo:
            state.echo.finish()

    def _finish(self) -> int:
        state = self.state
        self.loop.cancel("beat")
        self.beats.write()
        code, cause, message, first = self._result()
        outcome = {
            "exit_code": code,
            "cause": cause,
            "message": message,
            "first": first,
            "tail": state.failure.tail if state.failure else [],
            "ended": time.time(),
            "ended_ns": time.monotonic_ns(),
            "ended_by": state.ending.by if state.ending else None,
        }
        state.write("outcome.json", outcome)
        return code

    def _result(self) -> tuple[int, str | None, str, dict[str, object] | None]:
        state = self.state
        if state.failure is not None:
            return state.failure.code, state.failure.cause, state.failure.message, state.failure.first
        if state.ending is not None and state.ending.by == "success":
            return 0, None, "", None
        ends = sorted((rank.end.ended_ns, rank.end.code) for rank in state.ranks if rank.end is not None)
        return next((code for _, code in ends if code != 0), 0), None, "", None
