"""Sockets to the API server: TCP with keep-alive, HTTP and SOCKS proxies, TLS.

Not here: HTTP (`transport`), and who we are (`credentials`).
"""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from longboat.kubeapi.errors import KubeconfigError
from longboat.kubeapi.kubeconfig import ClusterAccess, pem

CONNECT_S = 10.0  # three lost packets are sent again within 7 s; whoever answers later is not there
QUIET_S = 20
"""After so many seconds of silence the kernel asks the other side whether it is still there, and again every 5 s."""
DEAD_MS = 30_000
"""What was sent and is not acknowledged within this ends the connection."""
_PORTS = {"https": 443, "http": 80}
_PROXY_PORTS = {"http": 80, "socks5": 1080, "socks5h": 1080}


class ServerAddress(NamedTuple):
    """Where connections go. `prefix` is put before every path: some gateways serve many clusters."""

    host: str
    port: int
    is_tls: bool
    prefix: str
    server_name: str
    proxy: SplitResult | None

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS["https" if self.is_tls else "http"] else f"{host}:{self.port}"


def target_of(access: ClusterAccess, environment: Mapping[str, str]) -> ServerAddress:
    """The server of a kubeconfig, and the proxy before it: its own `proxy-url`, else HTTPS_PROXY and NO_PROXY."""
    parts = _split(access.server, "server")
    if parts.scheme not in ("https", "http"):
        raise KubeconfigError(f"server {access.server!r}: only https and http are spoken")
    is_tls = parts.scheme == "https"
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    own = str(access.cluster.get("proxy-url") or "")
    proxy = own or proxy_for(parts.scheme, host, port, environment)
    proxy_parts = None
    if proxy:
        proxy_parts = _split(proxy if "://" in proxy else f"http://{proxy}", "proxy-url")
        if proxy_parts.scheme not in _PROXY_PORTS:
            raise KubeconfigError(
                f"proxy {proxy_parts.scheme}://{proxy_parts.hostname}: only http and socks5 proxies are spoken to"
            )
    name = str(access.cluster.get("tls-server-name") or host)
    return ServerAddress(host, port, is_tls, parts.path.rstrip("/"), name, proxy_parts)


def _split(url: str, field: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        if parts.hostname and parts.port != 0:
            return parts
    except ValueError:
        pass
    raise KubeconfigError(f"{field}: not an address: {url.rpartition('@')[2]!r}")


def proxy_for(scheme: str, host: str, port: int, environment: Mapping[str, str]) -> str:
    """The proxy that the environment wants for this address, as Go programs read it: never for this machine itself."""
    name = f"{scheme}_proxy"
    proxy = environment.get(name.upper()) or environment.get(name) or ""
    if not proxy or host == "localhost":
        return ""
    address = _address(host)
    if address is not None and address.is_loopback:
        return ""
    excepted = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    if any(_is_bypassed(entry.strip().lower(), host.lower(), port) for entry in excepted.split(",")):
        return ""
    return proxy


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_bypassed(entry: str, host: str, port: int) -> bool:
    if not entry or entry == "*":
        return entry == "*"
    address = _address(host)
    with contextlib.suppress(ValueError):
        network = ipaddress.ip_network(entry, strict=False)
        return address is not None and address in network
    name, colon, number = entry.rpartition(":")
    if colon and number.isdecimal():
        if int(number) != port:
            return False
        entry = name.strip("[]")
    if address is not None:
        return entry == host
    bare = entry.lstrip("*").lstrip(".")
    is_suffix_only = entry.startswith((".", "*."))
    return host.endswith(f".{bare}") or (host == bare and not is_suffix_only)


def tls_of(access: ClusterAccess, pair: bytes | None) -> ssl.SSLContext:
    """What is trusted, and the certificate we show."""
    is_insecure = bool(access.cluster.get("insecure-skip-tls-verify"))
    authority = None if is_insecure else pem(access.cluster, "certificate-authority")
    if is_insecure:
        context = _client_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif authority is not None:
        context = _trusting(authority, access)
    else:
        context = ssl.create_default_context()
        # Authorities of clusters are often made by tools that leave out what strict verification asks for.
        context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    if pair is not None:
        with _as_file(pair) as file:
            try:
                context.load_cert_chain(file, password=_refuse_password)
            except (ssl.SSLError, ValueError) as error:
                raise KubeconfigError(
                    f"the client certificate of context {access.context!r} cannot be used: {_reason(error)}"
                ) from None
    context.set_alpn_protocols(["http/1.1"])
    return context


def _trusting(authority: bytes, access: ClusterAccess) -> ssl.SSLContext:
    context = _client_context()
    try:
        context.load_verify_locations(cadata=authority.decode())
    except (ssl.SSLError, ValueError) as error:
        raise KubeconfigError(
            f"certificate-authority of context {access.context!r} cannot be used: {_reason(error)}"
        ) from None
    return context


def _client_context() -> ssl.SSLContext:
    """That trusts nobody yet: reading the authorities of this machine takes 20 ms."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _refuse_password() -> str:
    raise ValueError("its key is encrypted")


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error)


@contextlib.contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """OpenSSL reads keys from files: one in memory where there is such a thing, else a private one, for a moment."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        held = os.memfd_create("longboat")
        try:
            os.write(held, content)
            yield f"/proc/self/fd/{held}"
        finally:
            os.close(held)
        return
    import tempfile

    number, path = tempfile.mkstemp()
    try:
        os.write(number, content)
        os.close(number)
        yield path
    finally:
        os.unlink(path)


def dial(target: ServerAddress, tls: ssl.SSLContext | None, timeout_s: float = CONNECT_S) -> socket.socket:
    """A connection, with TLS on it where the server speaks it. OSError when there is none to be had."""
    first = (target.host, target.port)
    if target.proxy is not None:
        first = (target.proxy.hostname or "", target.proxy.port or _PROXY_PORTS[target.proxy.scheme])
    connected = socket.create_connection(first, timeout=timeout_s)
    try:
        _keep_alive(connected)
        if target.proxy is not None:
            connected = _through(target.proxy, connected, target)
        if tls is not None and target.is_tls:
            return tls.wrap_socket(connected, server_hostname=target.server_name)
        return connected
    except BaseException:
        connected.close()
        raise


def _keep_alive(connected: socket.socket) -> None:
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    wanted = (("TCP_KEEPIDLE", QUIET_S), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", DEAD_MS))
    for name, value in wanted:
        option = getattr(socket, name, None)
        if option is not None:
            with contextlib.suppress(OSError):
                connected.setsockopt(socket.IPPROTO_TCP, option, value)


def _through(proxy: SplitResult, connected: socket.socket, target: ServerAddress) -> socket.socket:
    if proxy.scheme.startswith("socks5"):
        _socks(proxy, connected, target)
        return connected
    host = f"[{target.host}]" if ":" in target.host else target.host
    lines = [f"CONNECT {host}:{target.port} HTTP/1.1", f"Host: {host}:{target.port}"]
    if proxy.username:
        both = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
        lines.append(f"Proxy-Authorization: Basic {base64.b64encode(both).decode()}")
    connected.sendall("\r\n".join([*lines, "", ""]).encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        # One by one: what follows the head belongs to the server behind.
        received = connected.recv(1)
        if not received or len(head) > 65536:
            raise ConnectionError(f"the proxy {proxy.hostname} closed the connection")
        head += received
    status = head.split(b"\r\n", 1)[0].decode(errors="replace")
    if status.split(" ")[1:2] != ["200"]:
        raise ConnectionError(f"the proxy {proxy.hostname} refused: {status}")
    return connected


def _socks(proxy: SplitResult, connected: socket.socket, target: ServerAddress) -> None:
    """SOCKS 5 (RFC 1928), names resolved by the proxy."""
    connected.sendall(b"\x05\x02\x00\x02" if proxy.username else b"\x05\x01\x00")
    if _exactly(connected, 2)[1] == 2 and proxy.username:
        user, word = unquote(proxy.username).encode(), unquote(proxy.password or "").encode()
        connected.sendall(b"\x01" + bytes([len(user)]) + user + bytes([len(word)]) + word)
        if _exactly(connected, 2)[1]:
            raise ConnectionError(f"the proxy {proxy.hostname} refused the user")
    address, name = _address(target.host), target.host.encode("idna") if _address(target.host) is None else b""
    if address is not None:
        where = (b"\x01" if address.version == 4 else b"\x04") + address.packed
    else:
        where = b"\x03" + bytes([len(name)]) + name
    connected.sendall(b"\x05\x01\x00" + where + target.port.to_bytes(2, "big"))
    answer = _exactly(connected, 4)
    if answer[1]:
        raise ConnectionError(f"the proxy {proxy.hostname} cannot reach the server (code {answer[1]})")
    size = {1: 4, 4: 16}.get(answer[3]) or _exactly(connected, 1)[0]
    _exactly(connected, size + 2)


def _exactly(connected: socket.socket, count: int) -> bytes:
    content = b""
    while len(content) < count:
        received = connected.recv(count - len(content))
        if not received:
            raise ConnectionError("the proxy closed the connection")
        content += received
    return content
