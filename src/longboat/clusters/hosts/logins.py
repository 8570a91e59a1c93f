"""Logins over SSH: options of ~/.ssh/config, keys, agents, bastions; few at a time, again when the server drops one.

Bastions are shared: one login serves all hosts behind it. Everything here runs in the event loop.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import socket
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import asyncssh
from asyncssh.config import SSHClientConfig

from longboat.clusters.hosts.connection import HostUnreachable
from longboat.clusters.hosts.known_hosts import DEFAULT_FILES, GLOBAL_FILES, HostKeyCheck
from longboat.clusters.hosts.settings import LoginSettings
from longboat.clusters.spec import HostSpec

AT_ONCE = 8
"""sshd drops logins beyond 10 that are not finished yet (MaxStartups), and one bastion may carry all of ours."""
RETRY_S = 60.0
"""How long a server may drop us: others log in there too, and each gets his turn within seconds."""
FIRST_DELAY_S, LONGEST_DELAY_S = 0.5, 8.0  # doubling: the server is busy with others' logins
LOGIN_S = 30.0
"""From the first packet to the end of the login: asyncssh has one limit for both. A busy host, or one that looks up
our name in a DNS without an answer, takes 10 to 20 s.
"""
KEEPALIVES = 3  # without an answer: a host that is merely busy misses one or two
_TARGET = re.compile(r"(?:(?P<user>[^@\s]+)@)?(?P<host>\[[0-9A-Fa-f:.%]+\]|[^@:\s\[\]]+)(?::(?P<port>[0-9]{1,5}))?")


class Logins:
    def __init__(self, settings: LoginSettings) -> None:
        self.settings = settings
        self._slots: asyncio.Semaphore | None = None
        self._bastions: dict[tuple[str, ...], asyncio.Task[asyncssh.SSHClientConnection]] = {}
        self._opened: weakref.WeakSet[asyncssh.SSHClientConnection] = weakref.WeakSet()

    async def log_in(self, host: HostSpec) -> asyncssh.SSHClientConnection:
        """Connect and log in; raises HostUnreachable with the reason in plain words."""
        jumps = tuple(host.bastion.split(",")) if host.bastion else None
        return await self._log_in(host, jumps, outer=())

    def close(self) -> None:
        for connection in self._opened:
            connection.close()

    async def _log_in(
        self, host: HostSpec, jumps: tuple[str, ...] | None, outer: tuple[str, ...]
    ) -> asyncssh.SSHClientConnection:
        try:
            arguments, config = self._arguments(host)
            if jumps is None:
                named = str(config.get("ProxyJump") or "none")
                jumps = () if named.lower() == "none" else tuple(named.split(","))
            if host.name in outer:
                raise HostUnreachable(host.name, "the way to it leads through itself (ProxyJump)")
            if jumps:
                arguments["tunnel"] = await self._bastion(host, jumps, (*outer, host.name))
            return await self._try_often(host, arguments, config)
        except (OSError, asyncssh.Error, asyncio.TimeoutError, ValueError) as error:
            raise HostUnreachable(host.name, **reason(error, host)) from error

    async def _bastion(
        self, host: HostSpec, jumps: tuple[str, ...], outer: tuple[str, ...]
    ) -> asyncssh.SSHClientConnection:
        """Connect to the last jump host through those before it; the connection is shared."""
        task = self._bastions.get(jumps)
        if task is None or _is_broken(task):
            target = parse_target(jumps[-1], host.name)
            # Through one of several jumps there is no further one but those named.
            before = jumps[:-1] or (None if len(jumps) == 1 else ())
            task = asyncio.ensure_future(self._log_in(target, before, outer))
            self._bastions[jumps] = task
        try:
            return await asyncio.shield(task)
        except HostUnreachable as error:
            raise HostUnreachable(host.name, f"bastion {error.message}", hint=error.hint) from error

    async def _try_often(
        self, host: HostSpec, arguments: dict[str, Any], config: SSHClientConfig
    ) -> asyncssh.SSHClientConnection:
        self._slots = self._slots or asyncio.Semaphore(AT_ONCE)
        deadline = time.monotonic() + RETRY_S
        for attempt in itertools.count():
            try:
                async with self._slots:
                    return await self._try_once(host, arguments, config)
            except (ConnectionResetError, BrokenPipeError, asyncssh.ConnectionLost):
                tunnel = arguments["tunnel"]
                if time.monotonic() > deadline or (tunnel is not None and tunnel.is_closed()):
                    raise
            # Many that were dropped together do not come back together.
            delay_s = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** min(attempt, 8))
            await asyncio.sleep(delay_s * random.uniform(0.5, 1.5))
        raise AssertionError("a try returns or raises")

    async def _try_once(
        self, host: HostSpec, arguments: dict[str, Any], config: SSHClientConfig
    ) -> asyncssh.SSHClientConnection:
        check = HostKeyCheck(
            host.name,
            known_hosts_files(config),
            alias=cast("str | None", config.get("HostKeyAlias")),
            accept_new=self.settings.accept_new_host_keys,
        )
        login = asyncssh.connect(**arguments, client_factory=lambda: check, known_hosts=check.match)
        try:
            connection = await asyncio.wait_for(login, 2 * LOGIN_S)  # a second line of defence
        except asyncssh.HostKeyNotVerifiable:
            raise check.refused or asyncssh.HostKeyNotVerifiable("it is revoked or expired") from None
        self._opened.add(connection)
        check.record()
        return connection

    def _arguments(self, host: HostSpec) -> tuple[dict[str, Any], SSHClientConfig]:
        """Arguments of `asyncssh.connect`, and the host's options in the SSH config files."""
        # ProxyJump is followed here, so that bastions are shared and their keys checked; ProxyCommand by asyncssh.
        given: dict[str, Any] = {"host": host.address, "config": self.settings.readable_configs(), "tunnel": None}
        if host.user:
            given["username"] = host.user
        if host.port:
            given["port"] = host.port
        config = asyncssh.SSHClientConnectionOptions(client_keys=None, **given).config
        # OpenSSH passes over keys that are named but not there.
        named = cast("Sequence[str]", config.get("IdentityFile", ()))
        keys = [path for path in named if Path(path).expanduser().is_file()]
        if host.key:
            keys = [str(Path(host.key).expanduser())]
        if host.key or config.get("IdentitiesOnly"):
            # Of the agent's keys only these: a server takes few tries, and the right one may have a passphrase.
            public = [f"{key}.pub" for key in keys if Path(f"{key}.pub").is_file()]
            given["agent_identities"] = public or None
        arguments = {
            **given, "client_keys": keys or (), "ignore_encrypted": True,
            "connect_timeout": LOGIN_S, "login_timeout": LOGIN_S,
            "keepalive_interval": self.settings.keepalive_s, "keepalive_count_max": KEEPALIVES,
            "request_pty": False, "agent_forwarding": False, "x11_forwarding": False,
            "password_auth": False, "kbdint_auth": False,
        }  # fmt: skip
        return arguments, config


def _is_broken(task: asyncio.Task[asyncssh.SSHClientConnection]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None or task.result().is_closed())


def parse_target(text: str, host: str) -> HostSpec:
    """Parse [user@]host[:port], an IPv6 address in brackets, or ssh://..., as OpenSSH does."""
    match = _TARGET.fullmatch(text.strip().removeprefix("ssh://").rstrip("/"))
    if match is None or text.startswith("-"):
        raise HostUnreachable(host, f"{text!r} is no bastion", hint="[user@]host[:port]")
    address = match["host"].strip("[]")
    return HostSpec(
        name=address, address=address, user=match["user"], port=int(match["port"]) if match["port"] else None
    )


def known_hosts_files(config: SSHClientConfig) -> list[Path]:
    """The known_hosts files; the user's own comes first, and new keys are added there."""
    own = cast("Sequence[str]", config.get("UserKnownHostsFile", ())) or DEFAULT_FILES
    others = cast("Sequence[str]", config.get("GlobalKnownHostsFile", GLOBAL_FILES))
    return [Path(path).expanduser() for path in (*own, *others)]


Causes = tuple[type[Exception], ...]


def reason(error: Exception, host: HostSpec) -> dict[str, Any]:
    """`reason` and `hint` of a failed login."""
    target = f"{host.user}@{host.address}" if host.user else host.address
    place = f"{host.address}:{host.port}" if host.port else host.address
    for causes, text, hint in _reasons(error, place, target):
        if isinstance(error, causes):
            return {"reason": text, "hint": hint}
    return {"reason": f"no connection to {place}: {error or type(error).__name__}", "hint": None}


def _reasons(error: Exception, place: str, target: str) -> Iterator[tuple[Causes, str, str | None]]:
    """Reasons by exception class, subclasses first."""
    try_ssh = f"does `ssh {target}` work? A key with a passphrase must be in the agent (ssh-add)"
    yield (asyncssh.PermissionDenied,), "the login was refused", try_ssh
    other_kind = "its host key may be of another kind than the one in known_hosts"
    yield (asyncssh.KeyExchangeFailed,), f"no common ground with its SSH server: {error}", other_kind
    yield (asyncssh.HostKeyNotVerifiable,), f"the host key cannot be verified: {error}", None
    yield (asyncssh.ConfigParseError,), f"the configuration of ssh: {error}", None
    yield (asyncssh.KeyImportError,), f"the key cannot be read: {error}", None
    yield (asyncssh.ChannelOpenError,), f"the bastion does not reach it: {error}", None
    overloaded = "is sshd overloaded (MaxStartups), or are we blocked?"
    yield (asyncssh.ConnectionLost,), "the server closed the connection during the login", overloaded
    unknown = f"the name {target.rpartition('@')[2]} is not known"
    yield (socket.gaierror,), unknown, "an address, or a name of ~/.ssh/config or DNS"
    yield (ConnectionRefusedError,), f"nothing answers at {place}", "is sshd running there, and on this port?"
    off = "is it switched on, and does a firewall let SSH through?"
    yield (asyncio.TimeoutError, TimeoutError), f"no answer from {place} within {LOGIN_S:g} s", off
    yield (FileNotFoundError,), f"{getattr(error, 'filename', '')} does not exist", None
