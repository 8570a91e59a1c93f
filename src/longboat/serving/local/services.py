"""Services of this machine: made, changed, listed and stopped. What happens to them is done by their supervisors."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from longboat.bundles import durable
from longboat.core.errors import (
    EngineError,
    LongboatError,
    NotFound,
    SecretMissing,
    ServiceDamaged,
    UsageError,
    WaitTimeout,
)
from longboat.core.guards.formats import NewerFormat
from longboat.core.jobs import Serve
from longboat.core.runs import LogLine, LogQuery
from longboat.engines.lifecycle.resubmission import SubmissionNote, forget_submission, note_submission
from longboat.engines.local.engine import LocalEngine
from longboat.engines.local.records import KEPT_VARIABLES
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.local.supervise.processes import is_alive
from longboat.engines.shared.files import (
    disk,
    last_lines_of,
    locked,
    make_folder,
    new_lock,
    remove_abandoned,
    remove_tree,
)
from longboat.engines.shared.home import current_user
from longboat.engines.shared.secrets import read_secrets
from longboat.serving.following import checked_follow, first_step
from longboat.serving.local.listening import checked_port
from longboat.serving.local.pinned_checkpoint import pin_checkpoint
from longboat.serving.local.records import (
    ServiceFolder,
    Version,
    WantedService,
    existing,
    own,
    own_or_damaged,
    service_names,
)
from longboat.serving.local.replicas import ReplicaRuns, clean_up, is_there
from longboat.serving.local.rollout import (
    asked_number,
    failure_of,
    is_canary_there,
    promoted,
    rolled,
    serving_settings,
    serving_version,
    without_failed,
)
from longboat.serving.local.spawn import leave_to_caller, supervise
from longboat.serving.local.status import status_of, unattended
from longboat.serving.requests import ServiceRequest
from longboat.serving.served_code import submission_of, with_code_of_now
from longboat.serving.service_status import ServiceStatus

HOST = "127.0.0.1"
"""What is listened on unless somebody says otherwise: the proxy asks nobody for a password."""
START_S = 30.0
"""The proxy listens a moment after its process was started; longer means that it failed."""
TAKE_OVER_S = 5.0
"""The same where a killed supervisor is replaced: what keeps the new one from listening is shown."""
STOP_MARGIN_S = 60.0
"""Beyond the draining and the grace of replicas: after this the command itself cleans up."""
DAMAGED_S = 300.0
"""The same for a service whose settings cannot be read: drains and graces are a minute or two at most."""
MOST_VERSIONS = 10
"""Versions that are kept to go back to; each pins a checkpoint."""


class LocalServices:
    """The services of one home."""

    def __init__(self, engine: LocalEngine, notice: Callable[[str], None] = lambda text: None) -> None:
        self._engine = engine
        self.home = engine.home
        self._environment: Mapping[str, str] = engine.environment
        self._notice = notice

    def exists(self, name: str) -> bool:
        return name in service_names(self.home)

    def settings(self, name: str) -> Serve | None:
        if not self.exists(name):
            return None
        folder, wanted = existing(self.home, name)
        return serving_settings(wanted, folder.state())

    # making and changing

    def serve(self, request: ServiceRequest) -> str:
        """Make the service, or give an existing one a new version. Its name."""
        request.check_name()
        name = request.service_name
        self.home.prepare()
        if name in service_names(self.home):
            return self._update(name, request)
        return self._create(name, request)

    def _create(self, name: str, request: ServiceRequest) -> str:
        if request.weight is not None:
            raise NotFound(f"no service named {name!r}: a canary goes beside what is served", hint="leave --canary out")
        parent = make_folder(self.home.root / "services")
        remove_abandoned(parent)
        draft = ServiceFolder(self.home, f".new-{os.urandom(6).hex()}")
        make_folder(draft.directory)
        lock = new_lock(draft.lock)  # for `remove_abandoned`
        uid = os.urandom(6).hex()
        try:
            version, serve, environment = self._version(draft, request, 1)
            version = version.moved(draft.directory, parent / name)
            if serve.ingress is not None:
                self._notice("`ingress` is for services of a cluster: here the address is a port of this machine")
            host = request.host or HOST
            port = checked_port(host, request.port or serve.port or 0)
            wanted = WantedService(
                name=name,
                uid=uid,
                created=time.time(),
                user=current_user(),
                host=host,
                port=port,
                serve=serve,
                versions=(version,),
                current=1,
                environment=environment,
            )
            draft.write_wanted(wanted)
            try:
                with disk(f"create {parent / name}"):
                    os.rename(draft.directory, parent / name)
                    durable.sync_folder(os.fspath(parent))
            except EngineError:
                if (parent / name).exists():
                    raise UsageError(f"a service named {name!r} was made this moment", hint="try again") from None
                raise
        finally:
            os.close(lock)
            remove_tree(draft.directory)
        folder = ServiceFolder(self.home, name)
        self._keep_code(wanted, version)
        supervise(folder, wanted, self._environment)
        if not self._await_proxy(folder):
            lines = last_lines_of(folder.log)
            self.stop(name)
            raise EngineError(f"the supervisor of {name} did not start: {lines[-1] if lines else 'it is gone'}")
        return name

    def _update(self, name: str, request: ServiceRequest) -> str:
        folder, _ = self._changeable(name)
        with locked(folder.change_lock()):
            folder, wanted = self._changeable(name)
            if request.port not in (None, wanted.port) or request.host not in (None, wanted.host):
                raise UsageError(
                    f"{name} listens on port {wanted.port} of {wanted.host}", hint="stop it, or take another --name"
                )
            number = max(version.number for version in wanted.versions) + 1
            state = folder.state()
            before = serving_version(wanted, state)
            if request.weight is not None:
                wanted = without_failed(wanted, state)
            request = msgspec.structs.replace(request, command=request.command or before.command)
            request = msgspec.structs.replace(request, serve=request.serve or serving_settings(wanted, state))
            version, serve, environment = self._version(folder, request, number)
            changed = msgspec.structs.replace(wanted, versions=(*wanted.versions, version), environment=environment)
            changed = rolled(changed, number, serve, request.weight)
            leave_to_caller(folder, changed, self._environment)
            self._keep_code(wanted, version)
            folder.write_wanted(self._pruned(folder, changed))
        self._notice_supervised(folder, changed)
        return name

    def promote(self, name: str, weight: int | None = None) -> None:
        """Let the canary take everything; or give it another weight, 0 ends it."""
        folder, _ = self._changeable(name)
        with locked(folder.change_lock()):
            folder, wanted = self._changeable(name)
            if wanted.canary is None:
                raise UsageError(
                    f"{name} has no canary", hint=f"longboat serve RUN --name {name} --canary 10 makes one"
                )
            if weight is None:
                if failure := failure_of(wanted, wanted.canary, folder.state()):
                    raise failure
                changed = promoted(wanted)
            elif weight == 0:
                changed = msgspec.structs.replace(wanted, canary=None, weight=0)
            else:
                changed = msgspec.structs.replace(wanted, weight=weight)
            folder.write_wanted(changed)
        self._notice_supervised(folder, wanted)

    def scale(self, name: str, least: int, most: int | None) -> None:
        folder, _ = self._changeable(name)
        with locked(folder.change_lock()):
            folder, wanted = self._changeable(name)
            serve = msgspec.structs.replace(wanted.serve, replicas=least, max_replicas=most)
            folder.write_wanted(msgspec.structs.replace(wanted, serve=serve))
        self._notice_supervised(folder, wanted)

    def _changeable(self, name: str) -> tuple[ServiceFolder, WantedService]:
        """Raises NotFound, UsageError."""
        folder, wanted = own(self.home, name)
        if folder.is_stopping():
            self._finish_stop(folder, wanted)
            raise UsageError(f"{name} is being stopped", hint="try again when `longboat serve ls` shows it no more")
        return folder, wanted

    def _version(
        self, folder: ServiceFolder, request: ServiceRequest, number: int
    ) -> tuple[Version, Serve, dict[str, str]]:
        submission = with_code_of_now(self.home, submission_of(self._engine, request), self._notice)
        record = RunFiles(self.home.run_dir(request.run)).record()
        serve = request.serve or submission.job.serve or Serve()
        command = request.command or serve.run
        if command is None:
            raise UsageError(
                f"no command to serve {request.run} with, and its job file has no `serve`",
                hint=f"longboat serve {request.run} -- python app.py --port '$PORT'",
            )
        serve = checked_follow(request, serve, submission.job, self._notice)
        read_secrets(self.home, submission.job.secrets, submission.environment)
        step, path = None, None
        if request.with_checkpoint:
            target, step = folder.version_dir(number), first_step(self._engine, request, serve, submission.job)
            step, path = pin_checkpoint(self.home, record, step, target, self._environment)
        version = Version(
            number=number,
            run=request.run,
            step=step,
            checkpoint=None if path is None else str(path),
            command=command,
            job=submission.job,
            base=submission.base,
            code=submission.code,
            outside=dict(submission.outside or {}),
            root=submission.root,
            in_place=submission.in_place,
            serve=serve,
        )
        environment = submission.environment
        return version, serve, {key: environment[key] for key in KEPT_VARIABLES if key in environment}

    def _keep_code(self, wanted: WantedService, version: Version) -> None:
        """See that the code is not collected when its run is removed."""
        note = SubmissionNote(run=version.run, namespace="", job=version.job, base=version.base, code=version.code)
        note_submission(self.home, f"service-{wanted.uid}-{version.number}", note)

    def _pruned(self, folder: ServiceFolder, wanted: WantedService) -> WantedService:
        """Without the oldest versions that nothing refers to."""
        state = folder.state()
        used = {wanted.current, wanted.canary, state.good, *(replica.version for replica in state.replicas)}
        spare = [version for version in wanted.versions if version.number not in used]
        gone = spare[: max(0, len(wanted.versions) - MOST_VERSIONS)]
        for version in gone:
            remove_tree(folder.version_dir(version.number))
            forget_submission(self.home, f"service-{wanted.uid}-{version.number}")
        return msgspec.structs.replace(wanted, versions=tuple(v for v in wanted.versions if v not in gone))

    # looking

    def list(self) -> Sequence[ServiceStatus]:
        statuses = []
        for name in service_names(self.home):
            try:
                statuses.append(self.status(name))
            except NotFound:
                continue
            except NewerFormat as error:
                self._notice(error.message)
            except ServiceDamaged as error:
                self._notice(f"{error.message}; {error.hint}")
        return statuses

    def status(self, name: str) -> ServiceStatus:
        """The service as it is; a vanished supervisor is replaced on the way."""
        return self._look(name)[0]

    def _look(self, name: str) -> tuple[ServiceStatus, LongboatError | None]:
        """The second: why nobody looks after it, and from here nobody can."""
        folder, wanted = existing(self.home, name)
        problem = None
        if not folder.is_stopping():
            problem = self._notice_supervised(folder, wanted)
        else:
            self._finish_stop(folder, wanted)
        state = folder.state()
        status = status_of(wanted, state, is_stopping=folder.is_stopping())
        if problem is not None:
            status = unattended(status, f"from here none can be started: {problem.message}", is_final=True)
        elif state.supervisor is not None and not is_alive(state.supervisor) and not folder.is_stopping():
            said = "".join(last_lines_of(folder.log)[-1:])
            status = unattended(status, f"another one is being started: {said}", is_final=False)
        return status, problem

    def logs(self, name: str, query: LogQuery) -> Iterator[LogLine]:
        from longboat.serving.local.logs import service_logs

        existing(self.home, name)
        return service_logs(self._engine, lambda: self._replica_names(name), query)

    def events(self, name: str) -> Sequence[str]:
        folder, _ = existing(self.home, name)
        return last_lines_of(folder.log, 1 << 20)

    def _replica_names(self, name: str) -> Sequence[str] | None:
        """Runs of the service's replicas, ended ones too as long as their logs are kept; None: the service is gone."""
        wanted = ServiceFolder(self.home, name).wanted()
        if wanted is None:
            return [] if self.exists(name) else None
        return ReplicaRuns(self.home, dict(self._environment)).of_service(wanted)

    def wait(self, name: str, *, timeout_s: float | None = None) -> ServiceStatus:
        """Until every replica of the wanted version, or of a canary, is ready. Raises Refused where it failed."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            folder, wanted = existing(self.home, name)
            status, problem = self._look(name)
            state = folder.state()
            if failure := failure_of(wanted, asked_number(wanted), state):
                raise failure
            if status.phase == "ready" or is_canary_there(wanted, state):
                return status
            if problem is not None:
                kind = SecretMissing if isinstance(problem, SecretMissing) else EngineError
                hint = problem.hint or "`longboat serve ls` starts one where that is not so"
                raise kind(f"{name}: {status.reason}", hint=hint)
            if deadline is not None and time.monotonic() > deadline:
                raise WaitTimeout(f"{name} is {status.phase}: {status.reason}", hint="the service goes on")
            time.sleep(0.1)

    def _notice_supervised(self, folder: ServiceFolder, wanted: WantedService) -> LongboatError | None:
        """See that a supervisor lives: a killed one is replaced. Why none can be, where that is so."""
        try:
            if not self._engine.takes_over:
                raise EngineError("it is only looked at")
            if supervise(folder, wanted, self._environment):
                self._notice(f"the supervisor of {folder.name} was killed; a new one takes over")
                self._await_proxy(folder, TAKE_OVER_S)
        except LongboatError as error:  # the home can only be read, or a secret is not known here
            supervisor = folder.state().supervisor
            if supervisor is None or not is_alive(supervisor):
                return error
        return None

    def _finish_stop(self, folder: ServiceFolder, wanted: WantedService) -> None:
        """See that somebody goes on with stopping it, where its supervisor was killed meanwhile."""
        with contextlib.suppress(LongboatError):  # it may be gone this moment
            if self._engine.takes_over:
                supervise(folder, wanted, self._environment)

    def _await_proxy(self, folder: ServiceFolder, timeout_s: float = START_S) -> bool:
        """Until the address answers: who is told the name may ask at once."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and folder.is_supervised():
            supervisor = folder.state().supervisor
            if supervisor is not None and is_alive(supervisor):
                return True
            time.sleep(0.01)
        return False

    # ending

    def stop(self, name: str) -> None:
        """End the service and everything of it. Returns when nothing is left."""
        folder, wanted = own_or_damaged(self.home, name)
        folder.request_stop()
        runs, uid, grace = ReplicaRuns(self.home, dict(self._environment)), None, DAMAGED_S
        if wanted is not None:
            uid = wanted.uid
            grace = wanted.serve.drain_s + wanted.version(wanted.current).job.grace_s + STOP_MARGIN_S
        deadline = time.monotonic() + grace
        while is_there(folder, uid) and time.monotonic() < deadline:
            if clean_up(folder, uid, runs):
                break
            time.sleep(0.05)
        if is_there(folder, uid):
            raise EngineError(f"{name} has not stopped after {grace:g} s", hint=f"see {folder.log}")
        for version in wanted.versions if wanted is not None else ():  # notes of a damaged one expire
            forget_submission(self.home, f"service-{uid}-{version.number}")
