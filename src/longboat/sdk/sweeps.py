"""Opens stored sweeps: whoever looks at one sees to it that a process drives it.

The driver is a detached process, as the supervisor of a run is: a sweep goes on when the command that started it ends.
In a cluster the controller drives sweeps; such a process does so where there is none. The home of whoever began a sweep
in a cluster has a folder of it too: it says where the sweep is.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from longboat.core.errors import EngineError, LongboatError, NotFound, UsageError, WaitTimeout
from longboat.core.guards.own_modules import own_program
from longboat.core.runs import FINAL_PHASES, PrunedItem, PruneQuery, RunStatus
from longboat.core.words import listing
from longboat.engines.engine import Engine
from longboat.engines.shared.files import LogStream, disk
from longboat.engines.shared.home import Home, current_user
from longboat.engines.shared.secrets import read_secrets
from longboat.engines.shared.stop_request import StopRequest
from longboat.sdk.engines import engine
from longboat.sdk.names import LATEST
from longboat.sweeps.record import SweepFolder, SweepRecord, SweepStore, needs_submitter, sweep_names
from longboat.sweeps.trials import SweepState

if TYPE_CHECKING:
    from longboat.sweeps.drive import SweepDriver

LOCK_S = 5.0
"""Whoever looks whether a sweep is driven holds its lock for a moment: a new driver waits for longer than that."""
ENDING_S = 0.2
"""Between looks of whoever waits for the end of a sweep."""
REMOTE_LOOK_S = 1.0
"""The same where a look is a request."""
DRIVER_S = 2.0
"""How often whoever waits looks for a driver: a new one takes a second until it holds the lock."""

_PROGRAM = own_program("from longboat.sdk.sweeps import main; main(sys.argv[1])", first_root=2)


class OpenSweep:
    """A sweep, wherever it is kept. `folder`: what this home has of it, of a sweep in a cluster its place."""

    def __init__(self, name: str, store: SweepStore, engine: Engine, folder: SweepFolder | None) -> None:
        self.name, self.store, self.engine, self.folder = name, store, engine, folder

    @property
    def is_in_cluster(self) -> bool:
        return self.engine.name == "kubernetes"

    def record(self) -> SweepRecord:
        return self.store.record()

    def state(self) -> SweepState:
        return self.store.state()


def open_sweep(home: Home, name: str) -> OpenSweep:
    """The sweep that this home knows by this name. Raises NotFound, or EngineError where it is damaged."""
    folder = SweepFolder(home, name)
    record = folder.record()
    place = engine(record.engine, context=record.context, namespace=record.namespace)
    if record.engine != "kubernetes":
        return OpenSweep(name, folder, place, folder)
    return OpenSweep(name, cluster_store(place, name), place, folder)


def cluster_store(place: Engine, name: str) -> SweepStore:
    from longboat.engines.kubernetes.engine import KubernetesEngine
    from longboat.sweeps.kubernetes.store import ClusterSweep

    assert isinstance(place, KubernetesEngine)
    return ClusterSweep(place.client, name)


def all_sweeps(home: Home, place: Engine | None, problems: list[str]) -> list[OpenSweep]:
    """The sweeps that this home knows, or those of a cluster, the newest first; what cannot be read is told."""
    if place is not None and place.name == "kubernetes":
        from longboat.engines.kubernetes.engine import KubernetesEngine
        from longboat.sweeps.kubernetes.store import list_sweeps

        assert isinstance(place, KubernetesEngine)
        names = [stored.record.name for stored in list_sweeps(place.client, problems)]
        return [OpenSweep(name, cluster_store(place, name), place, None) for name in names]
    sweeps = []
    for name in sweep_names(home):
        try:
            sweeps.append(open_sweep(home, name))
        except LongboatError as error:
            problems.append(error.message)
    return sweeps


def find_sweep(home: Home, text: str, *, place: Engine | None = None, is_whole: bool = False) -> OpenSweep:
    """The sweep with this name, a beginning of it, or the latest for `-`. Raises NotFound.

    `place`: the cluster to look in; None: what this home knows.
    """
    if place is not None and place.name == "kubernetes":
        problems: list[str] = []
        known = {sweep.name: sweep for sweep in all_sweeps(home, place, problems)}
        name = _chosen(list(known), text, is_whole=is_whole)
        return known[name]
    return open_sweep(home, _chosen(sweep_names(home), text, is_whole=is_whole))


def _chosen(names: list[str], text: str, *, is_whole: bool) -> str:
    if text in names:
        return text
    if not names:
        raise NotFound("there are no sweeps yet", hint="longboat sweep job.yaml --param lr=0.1,0.01")
    begun = names[:1] if text == LATEST else [name for name in names if name.startswith(text) and not is_whole]
    if not begun:
        raise NotFound(f"no sweep named {text!r}", hint=f"there are {listing(names, 8)}")
    if len(begun) > 1:
        raise UsageError(f"{text!r} is the beginning of {len(begun)} sweeps", hint=f"one of {listing(begun, 8)}")
    return begun[0]


def pruned_words(home: Home, run: RunStatus) -> str | None:
    """`pruned by its sweep at step 12`, of a trial that its sweep stopped early; None of others."""
    name = run.labels.get("sweep", "")
    if run.phase != "stopped" or name not in sweep_names(home):
        return None
    try:
        state = open_sweep(home, name).state()
    except LongboatError:  # of a cluster that is away, or damaged: the run tells of itself
        return None
    trial = next((trial for trial in state.trials if trial.run == run.name and trial.is_pruned), None)
    if trial is None:
        return None
    return f"pruned by its sweep {name} at step {trial.step}{f': {trial.reason}' if trial.reason else ''}"


def ensure_driven(home: Home, sweep: OpenSweep) -> str | None:
    """Start a driver where none is at work. Why none can be started from here, where that is so."""
    if sweep.is_in_cluster:
        return _ensure_driven_there(home, sweep)
    folder = SweepFolder(home, sweep.name)
    record = folder.record()
    if folder.state().is_final or folder.is_driven():
        return None
    if os.stat(folder.directory).st_uid != os.getuid():
        return f"sweep {folder.name} is of another user, and its driver is gone: who began it goes on with it"
    try:
        read_secrets(home, record.job.secrets, {**os.environ, **record.environment})
    except LongboatError as error:
        return f"nobody drives {folder.name}, and trials cannot be submitted from here: {error.message}"
    _start_driver(home, folder)
    return None


def _ensure_driven_there(home: Home, sweep: OpenSweep) -> str | None:
    """A sweep in a cluster is driven by the controller, else from the home of whoever began it."""
    from longboat.engines.kubernetes.engine import KubernetesEngine
    from longboat.engines.kubernetes.install.install import absence, find_controller

    assert isinstance(sweep.engine, KubernetesEngine)
    client = sweep.engine.client
    if sweep.state().is_final or (sweep.folder is not None and sweep.folder.is_driven()):
        return None
    try:
        lacking = absence(find_controller(client), client.namespace)
    except EngineError as error:
        lacking = (error.message, "")
    if needs_submitter(sweep.record()):
        lacking = ("controllers have no optuna", "")
    if lacking is None:
        return None
    if sweep.folder is None:
        other = "" if needs_submitter(sweep.record()) else ", or a controller does"
        return f"{sweep.name} goes on when whoever began it looks at it{other}: {lacking[0]}"
    _start_driver(home, sweep.folder)
    return None


def _start_driver(home: Home, folder: SweepFolder) -> None:
    roots = [str(Path(__file__).parents[2]), str(Path(msgspec.__file__).parents[1])]
    with disk("start the driver"), open(folder.log, "ab") as log:
        subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, folder.name, *roots],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder.directory,
            env={**os.environ, "LONGBOAT_HOME": str(home.root)},
            start_new_session=True,
        )


def main(name: str) -> None:
    """The driver's process."""
    sys.stdout = sys.stderr = LogStream()
    home = Home()
    folder = SweepFolder(home, name)
    deadline = time.monotonic() + LOCK_S
    while time.monotonic() < deadline:
        with folder.driving() as is_ours:
            if is_ours:
                driver = driver_of(open_sweep(home, name))
                try:
                    driver.run()
                except Exception as error:  # else whoever looks would start one after the other
                    driver.fail(f"the driver failed: {error} (see {folder.log})")
                    raise
                return
        if not folder.exists():
            return
        time.sleep(0.05)


def driver_of(sweep: OpenSweep) -> SweepDriver:
    """Whoever drives a sweep of a cluster from here takes turns of its trials too."""
    from longboat.sweeps.drive import EngineRuns, SweepDriver

    if not sweep.is_in_cluster:
        return SweepDriver(EngineRuns(sweep.engine, sweep.record(), os.environ), sweep.store)
    from longboat.sweeps.kubernetes.store import ClusterSweep
    from longboat.sweeps.kubernetes.trial_runs import ClusterTrials
    from longboat.sweeps.kubernetes.turns import TrialTurns

    assert isinstance(sweep.store, ClusterSweep)
    return SweepDriver(ClusterTrials(sweep.store, turns=TrialTurns()), sweep.store)


def stop_sweep(sweep: OpenSweep, grace_s: float | None = None) -> None:
    """Ask the sweep to stop and return: no trial starts any more, those under way are stopped."""
    if not sweep.state().is_final:
        sweep.store.request_stop(StopRequest(at=time.time(), grace_s=grace_s))


def wait_sweep(
    home: Home, sweep: OpenSweep, tell: Callable[[str], None], *, timeout_s: float | None = None
) -> SweepState:
    """Block until the sweep has ended, or raise WaitTimeout. `tell` is told what is waited for, where that is known and
    when it changes."""
    looked, reason = -DRIVER_S, ""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while not (state := sweep.state()).is_final:
        if deadline is not None and time.monotonic() > deadline:
            raise WaitTimeout(f"{sweep.name} has not ended after {timeout_s:g} s", hint="the sweep goes on")
        if time.monotonic() - looked >= DRIVER_S:
            looked = time.monotonic()
            problem = ensure_driven(home, sweep)
            if problem is not None:
                raise EngineError(problem)
        before, reason = reason, waits_for(state)
        if reason and reason != before:
            tell(f"{sweep.name} waits for {reason}")
        time.sleep(REMOTE_LOOK_S if sweep.is_in_cluster else ENDING_S)
    return state


def waits_for(state: SweepState) -> str:
    """The first trial that does not end, and why."""
    alive = (trial for trial in state.trials if not trial.is_final and trial.reason)
    return next((f"{trial.run}: {trial.reason}" for trial in alive), "")


def remove_sweep(home: Home, sweep: OpenSweep, *, purge: bool) -> None:
    """Remove an ended sweep with the runs of its trials. A run that has the name of a trial and is not one stays."""
    from longboat.engines.lifecycle.resubmission import forget_submission

    record, state = sweep.record(), sweep.state()
    if not state.is_final:
        raise UsageError(
            f"sweep {sweep.name} has not ended", hint=f"longboat sweep stop {sweep.name}, or sweep rm --force"
        )
    if sweep.is_in_cluster:
        from longboat.sweeps.kubernetes.removal import remove_cluster_sweep

        remove_cluster_sweep(sweep.engine, sweep.name, purge=purge)
    else:
        _remove_runs(sweep.engine, record, state, purge=purge)
    forget_submission(home, record.uid)
    folder = sweep.folder or SweepFolder(home, sweep.name)
    if folder.exists() and (sweep.folder is not None or _is_place_of(folder, record)):
        folder.remove()


def prune_sweeps(home: Home, place: Engine, query: PruneQuery) -> Iterator[PrunedItem]:
    """Remove sweeps that ended before that moment, with what is left of their runs. Who asks for failed runs means
    these alone: then no sweep goes."""
    if set(query.phases) != set(FINAL_PHASES):
        return
    problems: list[str] = []
    for sweep in all_sweeps(home, place if place.name == "kubernetes" else None, problems):
        if sweep.engine.name != place.name:
            continue
        try:
            record, state = sweep.record(), sweep.state()
            if state.ended is None or not state.ended < query.ended_before:
                continue
            if sweep.is_in_cluster and record.user != current_user() and not query.all_users:
                continue
            item = PrunedItem(kind="sweep", name=sweep.name, phase=state.phase, ended=state.ended, user=record.user)
            if not query.dry_run:
                remove_sweep(home, sweep, purge=False)
        except LongboatError as error:
            item = PrunedItem(kind="sweep", name=sweep.name, problem=error.message)
        yield item


def _remove_runs(place: Engine, record: SweepRecord, state: SweepState, *, purge: bool) -> None:
    from longboat.sweeps.drive import is_trial_of

    for trial in state.trials:
        with contextlib.suppress(NotFound):
            if is_trial_of(record, place.status(trial.run)):
                place.delete(trial.run, purge=purge)


def _is_place_of(folder: SweepFolder, record: SweepRecord) -> bool:
    try:
        return folder.record().uid == record.uid
    except LongboatError:
        return False


def remove_damaged(home: Home, name: str, place: Engine | None) -> list[str]:
    """Remove what is there of a sweep that cannot be read, in a cluster or in this home; the runs that its state names,
    which stay."""
    folder = SweepFolder(home, name)
    if place is not None and place.name == "kubernetes":
        from longboat.sweeps.kubernetes.removal import remove_damaged_map

        remove_damaged_map(place, name)
        return []
    runs = [trial.run for trial in folder.state().trials]
    folder.remove()
    return runs
