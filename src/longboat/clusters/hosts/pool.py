"""All hosts of a cluster at once: connections made side by side, what goes wrong collected host by host."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar

from longboat.clusters.hosts.connection import HostConnection
from longboat.clusters.hosts.local import LocalConnection
from longboat.clusters.hosts.settings import LoginSettings
from longboat.clusters.spec import HostSpec
from longboat.core.errors import EngineError, LongboatError, Refused

if TYPE_CHECKING:
    from longboat.clusters.hosts.logins import Logins
    from longboat.clusters.hosts.loop_thread import LoopThread

T = TypeVar("T")
THREADS = 64  # threads mostly wait for hosts; more would only cost memory


class Answers(Generic[T]):
    """By host: what a function returned, or the error it ended with."""

    def __init__(self) -> None:
        self.values: dict[str, T] = {}
        self.errors: dict[str, LongboatError] = {}

    def checked(self) -> dict[str, T]:
        """The values, if there is one of every host; else one error with a line for each host that failed."""
        if not self.errors:
            return self.values
        if len(self.errors) == 1:
            raise next(iter(self.errors.values()))
        hints = list(dict.fromkeys(error.hint for error in self.errors.values() if error.hint))
        raise EngineError("\n".join(error.message for error in self.errors.values()), hint="\n".join(hints) or None)


class Hosts:
    """Open connections, by the hosts' names in the order of the cluster file. Also those that could not be opened."""

    def __init__(
        self, connections: dict[str, HostConnection], failures: dict[str, LongboatError], connector: Connector
    ) -> None:
        self.connections, self.failures = connections, failures
        self._connector = connector

    def __enter__(self) -> Hosts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getitem__(self, name: str) -> HostConnection:
        """Of a host that is connected; its failure else."""
        if name in self.failures:
            raise self.failures[name]
        return self.connections[name]

    def each(self, function: Callable[[HostConnection], T], names: Iterable[str] | None = None) -> Answers[T]:
        """Call it for all hosts (or those named) side by side. Errors of Longboat's own are collected, bugs raised."""
        chosen = [self.connections[name] for name in names or self.connections if name in self.connections]
        answers = side_by_side({host.name: host for host in chosen}, function, stop=self.close)
        for name in names or self.failures:
            if name in self.failures:
                answers.errors[name] = self.failures[name]
        return answers

    def close(self) -> None:
        self._connector.close()


class Connector:
    """Makes connections; the event loop for those over SSH starts with the first."""

    def __init__(self, settings: LoginSettings) -> None:
        self.settings = settings
        self._ssh: tuple[LoopThread, Logins] | None = None
        self._lock = threading.Lock()
        self._password: list[str | None] = []

    def open(self, host: HostSpec) -> HostConnection:
        if not host.address:
            return LocalConnection(host.name, self._ask_password)
        loop, logins = self._load_ssh()
        from longboat.clusters.hosts.ssh import SshConnection

        connection = SshConnection(host, loop, logins, self._ask_password)
        connection.connect()
        return connection

    def close(self) -> None:
        if self._ssh is not None:
            loop, logins = self._ssh
            loop.close(logins.close)

    def _load_ssh(self) -> tuple[LoopThread, Logins]:
        with self._lock:
            if self._ssh is None:
                try:
                    from longboat.clusters.hosts.logins import Logins
                except ModuleNotFoundError as error:
                    if error.name != "asyncssh":
                        raise
                    raise Refused("hosts over SSH need asyncssh", hint="pip install 'longboat[ssh]'") from error
                from longboat.clusters.hosts.loop_thread import LoopThread

                self._ssh = LoopThread(), Logins(self.settings)
            return self._ssh

    def _ask_password(self) -> str | None:
        """Hosts find out side by side that they need it; the user is asked once."""
        with self._lock:
            if not self._password:
                self._password.append(self.settings.ask_password())
            return self._password[0]


def connect(hosts: Sequence[HostSpec], settings: LoginSettings | None = None) -> Hosts:
    """Connect to all of them. Never raises for a host that cannot be reached: see `failures`."""
    connector = Connector(settings or LoginSettings())
    answers = side_by_side({host.name: host for host in hosts}, connector.open, stop=connector.close)
    if any(isinstance(error, Refused) for error in answers.errors.values()):
        connector.close()
        raise next(error for error in answers.errors.values() if isinstance(error, Refused))
    connections = {host.name: answers.values[host.name] for host in hosts if host.name in answers.values}
    return Hosts(connections, answers.errors, connector)


K = TypeVar("K")


def side_by_side(
    items: dict[str, K], function: Callable[[K], T], stop: Callable[[], None] = lambda: None
) -> Answers[T]:
    """`stop` is called when we are interrupted, so that nobody waits for hosts that hang."""
    answers: Answers[T] = Answers()
    if not items:
        return answers
    with ThreadPoolExecutor(min(THREADS, len(items)), thread_name_prefix="host") as pool:
        running = {name: pool.submit(function, item) for name, item in items.items()}
        try:
            for name, work in running.items():
                try:
                    answers.values[name] = work.result()
                except LongboatError as error:
                    answers.errors[name] = error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            stop()
            raise
    return answers
