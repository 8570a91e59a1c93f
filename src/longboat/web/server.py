"""The dashboard's process: a socket, a token, uvicorn, and the address for the user."""

from __future__ import annotations

import ipaddress
import re
import secrets
import socket
import sys
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from longboat.core.errors import EngineError, UsageError
from longboat.web.access import AccessRules
from longboat.web.places import ShownPlace

LOOPBACK = "127.0.0.1"
MOST_CONNECTIONS = 256
"""Of all browsers together; each open page has one stream, one more with a live log."""
SHUTDOWN_S = 2
"""Streams have no end of their own: they are cut after so long."""
_TOKEN = re.compile(r"[A-Za-z0-9_-]{32,256}")
_HOST_NAME = re.compile(r"(?!-)[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63}){0,10}\.?")


class DashboardOptions(NamedTuple):
    host: str = LOOPBACK
    port: int = 0  # 0: a free one
    readonly: bool = False
    certificate: str | None = None
    key: str | None = None
    allow_plain: bool = False  # without TLS on an address that others reach
    public_url: str | None = None  # where browsers reach it: a proxy with TLS
    token_file: str | None = None  # the token, where it is not made anew and shown
    has_users: bool = False  # behind a proxy that says who asks
    groups: tuple[str, ...] = ()  # of users, that clusters are told


def check_options(options: DashboardOptions) -> None:
    """Raises UsageError for an address that would send the token in the clear over a network. Pure."""
    if (options.certificate is None) != (options.key is None):
        raise UsageError("--tls-cert and --tls-key go together", hint="both are files in PEM form")
    if options.public_url is not None:
        public_host(options.public_url)
    if options.has_users and (options.token_file is None or options.public_url is None):
        raise UsageError(
            "--users-from-proxy needs --token-file and --public-url",
            hint="the token is the proxy's proof; docs/ui.md has an example",
        )
    if options.groups and not options.has_users:
        raise UsageError("--group without --users-from-proxy", hint="groups are those of users that a proxy names")
    if is_loopback(options.host) or options.certificate is not None or options.allow_plain:
        return
    raise UsageError(
        f"--bind {options.host} without TLS: whoever is on the network could read the token and act as you",
        hint="--tls-cert FILE --tls-key FILE; or ssh -L 8080:127.0.0.1:8080 from there; or --insecure-bind",
    )


def public_host(url: str) -> str:
    """Host and port of a public address, as browsers send them. Raises UsageError. Pure."""
    host = url.lower().removeprefix("https://")
    try:
        parts = urlsplit(f"https://{host}")
        port = parts.port
    except ValueError:
        parts, port = urlsplit("https://"), None
    name = parts.hostname or ""
    shown = url_host(name) if port in (None, 443) else f"{url_host(name)}:{port}"
    is_name = _HOST_NAME.fullmatch(name) is not None or _is_address(name)
    if not url.lower().startswith("https://") or not is_name or host.removesuffix("/") not in (shown, f"{shown}:443"):
        raise UsageError(
            f"--public-url {url!r} is not the address of a proxy with TLS",
            hint="https://HOST or https://HOST:PORT, without a path",
        )
    return shown


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def allowed_hosts(host: str, port: int, names: tuple[str, ...] = ()) -> frozenset[str]:
    """Host headers that mean this server. An address of all interfaces stands for this machine's names. Pure."""
    own = {host, *names} if is_loopback(host) else {host, *names, "localhost", LOOPBACK}
    if is_loopback(host):
        own |= {"localhost", LOOPBACK, "::1"}
    shown = {url_host(name) for name in own}
    return frozenset({f"{name}:{port}" for name in shown} | (shown if port in (80, 443) else set()))


def access_rules(options: DashboardOptions, port: int, token: str, names: tuple[str, ...] = ()) -> AccessRules:
    """Behind a proxy only its pages are ours; it passes on its own Host, or the address that it asks. Pure."""
    scheme = "http" if options.certificate is None else "https"
    hosts, origin = allowed_hosts(options.host, port, names), None
    if options.public_url is not None:
        public = public_host(options.public_url)
        hosts, scheme, origin = allowed_hosts(options.host, port) | {public}, "https", f"https://{public}"
    rules = AccessRules(token=token, hosts=hosts, scheme=scheme, cookie=f"longboat-{port}", origin=origin)
    return rules._replace(has_users=options.has_users, groups=frozenset(options.groups))


def read_token(path: str) -> str:
    """Raises UsageError. What it says is never part of a message."""
    try:
        with open(path, encoding="ascii") as file:
            token = file.read(4096).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not ASCII"
        raise UsageError(f"--token-file {path}: {reason}", hint="a file with one line: openssl rand -hex 32") from None
    if not _TOKEN.fullmatch(token):
        raise UsageError(
            f"--token-file {path}: not 32 to 256 letters, digits, - and _", hint="openssl rand -hex 32 makes one"
        )
    return token


def open_socket(options: DashboardOptions) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((options.host, options.port))
    except OSError as error:
        listening.close()
        where = f"{options.host}:{options.port}"
        raise EngineError(f"cannot listen at {where}: {error.strerror}", hint="--port N; 0 takes a free one") from None
    listening.listen(MOST_CONNECTIONS)
    return listening


class DashboardServer:
    """A server that listens already, so that its address is known before it runs."""

    def __init__(self, places: list[ShownPlace], options: DashboardOptions) -> None:
        from longboat.web.app import Dashboard, make_app
        from longboat.web.events import EventLog
        from longboat.web.watching import Watchers

        uvicorn = import_uvicorn()
        check_options(options)
        self._socket = open_socket(options)
        port = self._socket.getsockname()[1]
        names = (socket.gethostname(), socket.getfqdn()) if not is_loopback(options.host) else ()
        token = secrets.token_urlsafe(32) if options.token_file is None else read_token(options.token_file)
        rules = access_rules(options, port, token, names)
        host = socket.gethostname() if options.host in ("0.0.0.0", "::") else options.host
        origin = rules.origin or f"{rules.scheme}://{url_host(host)}:{port}"
        # In a pod this line is in a log: a token that others have written down is not shown again.
        self.address = f"{origin}/?token={rules.token}" if options.token_file is None else f"{origin}/"
        dashboard = Dashboard(Watchers(places, EventLog()), rules, readonly=options.readonly)
        config = uvicorn.Config(
            make_app(dashboard),
            log_level="error",  # no line for each request: addresses may hold the token
            access_log=False,
            server_header=False,
            lifespan="on",
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=SHUTDOWN_S,
            ssl_certfile=options.certificate,
            ssl_keyfile=options.key,
        )
        try:
            config.load()
        except OSError as error:  # SSLError is one
            raise UsageError(f"--tls-cert, --tls-key: {error}", hint="a certificate and its key in PEM form") from None
        self._server = uvicorn.Server(config)

    def run(self) -> None:
        """Serve until Ctrl-C."""
        self._server.run(sockets=[self._socket])


def url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host.lower()


def import_uvicorn() -> Any:
    """uvicorn, where the extra is installed. Raises EngineError with the command that brings it."""
    try:
        import starlette  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise EngineError(
            f"the dashboard needs {error.name or 'starlette'}, which is not installed",
            hint=f"{sys.executable} -m pip install 'longboat[ui]'",
        ) from None
    return uvicorn
