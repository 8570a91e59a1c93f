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
from longboat.clusters.hosts.shell import ShellConnection
from longboat.clusters.spec import HostSpec
from longboat.core.errors import EngineError, LongboatError, Refused

if TYPE_CHECKING:
    from longboat.clusters.hosts.logins import Logins
    from longboat.clusters.hosts.loop_thread import LoopThread

T = TypeVar("T")
K = TypeVar("K")
THREADS = 64  # threads mostly wait for hosts; more would only cost memory


class Answers(Generic[T]):
    """Results of a function called for several hosts: values and errors by host."""

    def __init__(self) -> None:
        self.values: dict[str, T] = {}
        self.errors: dict[str, LongboatError] = {}

    def checked(self) -> dict[str, T]:
        """The values of all hosts; raises one error with a line for each host that failed."""
        if not self.errors:
            return self.values
        if len(self.errors) == 1:
            raise next(iter(self.errors.values()))
        hints = list(dict.fromkeys(error.hint for error in self.errors.values() if error.hint))
        raise EngineError("\n".join(error.message for error in self.errors.values()), hint="\n".join(hints) or None)


class Hosts:
    """Connections by host name, in the order of the cluster file, with the failures of hosts that are not connected."""

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
        """The connection of a host; raises its failure if it has none."""
        if name in self.failures:
            raise self.failures[name]
        return self.connections[name]

    def each(self, function: Callable[[HostConnection], T], names: Iterable[str] | None = None) -> Answers[T]:
        """Call a function for all hosts (or those named) in parallel. Our own errors are collected, bugs raised."""
        chosen = {*self.connections, *self.failures} if names is None else set(names)
        connected = {name: host for name, host in self.connections.items() if name in chosen}
        answers = side_by_side(connected, function, stop=self.close)
        answers.errors.update({name: error for name, error in self.failures.items() if name in chosen})
        return answers

    def close(self) -> None:
        self._connector.close()


class Connector:
    """Opens connections; starts the event loop with the first one over SSH."""

    def __init__(self, settings: LoginSettings) -> None:
        self.settings = settings
        self._ssh: tuple[LoopThread, Logins] | None = None
        self._local: list[LocalConnection] = []
        self._lock = threading.Lock()

    def open(self, host: HostSpec) -> ShellConnection:
        if not host.address:
            self._local.append(LocalConnection(host.name))
            return self._local[-1]
        loop, logins = self._load_ssh()
        from longboat.clusters.hosts.ssh import SshConnection

        connection = SshConnection(host, loop, logins)
        connection.connect()
        return connection

    def close(self) -> None:
        for connection in self._local:
            connection.close()
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


def connect(hosts: Sequence[HostSpec], settings: LoginSettings | None = None) -> Hosts:
    """Connect to all hosts. Unreachable hosts raise nothing: see `failures`."""
    connector = Connector(settings or LoginSettings())
    answers = side_by_side({host.name: host for host in hosts}, connector.open, stop=connector.close)
    try:
        _unlock(answers, connector)
    except BaseException:
        connector.close()
        raise
    if any(isinstance(error, Refused) for error in answers.errors.values()):
        connector.close()
        raise next(error for error in answers.errors.values() if isinstance(error, Refused))
    connections: dict[str, HostConnection] = {
        host.name: answers.values[host.name] for host in hosts if host.name in answers.values
    }
    return Hosts(connections, answers.errors, connector)


def _unlock(answers: Answers[ShellConnection], connector: Connector) -> None:
    """Find out how each host gives root. The user is asked for one password, in the main thread, which Ctrl-C
    interrupts.
    """
    ways = side_by_side(answers.values, lambda host: host.sudo, stop=connector.close)
    asking = {name: answers.values[name] for name, way in ways.values.items() if way == "asks"}
    password = connector.settings.ask_password() if asking else None
    failed = dict(ways.errors)
    if password is not None:
        failed |= side_by_side(asking, lambda host: host.unlock(password), stop=connector.close).errors
    for name, error in failed.items():
        del answers.values[name]
        answers.errors[name] = error


def side_by_side(
    items: dict[str, K], function: Callable[[K], T], stop: Callable[[], None] = lambda: None
) -> Answers[T]:
    """Run functions in parallel; on an interrupt `stop` is called, so that nobody waits for hanging hosts."""
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
