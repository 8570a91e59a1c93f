"""Rules for single texts of a cluster file: hosts, users, URLs, networks. Each says what is wrong, or nothing. Pure.

What passes here reaches ssh, shells, configuration files and manifests: none of it holds blanks, quotes, wildcards or a
leading dash. Paths are the exception; they stay on this machine.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

from longboat.clusters.spec import VolumeStorage

HOST = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?"
HOST_EXPECTED = "an address or the name of a host: letters, digits, -, _ and ."
NODE = r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?"
NODE_EXPECTED = "the name of a node: lower-case letters, digits, - and ., at most 63 characters"
USER = r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}"
USER_EXPECTED = "the name of a user: letters, digits, _, ., @ and -"
LOGIN_EXPECTED = "user@host:port, of which user and port may be left out"
URL = r"https?://[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?(/[A-Za-z0-9._~%/+@:=,{}-]*)?"
URL_EXPECTED = "a URL that begins with https:// or http://, without blanks, quotes, ? or #"
SUITE = r"/|[A-Za-z0-9][A-Za-z0-9._/-]*( [A-Za-z0-9][A-Za-z0-9._/-]*)*"
FOLDER = r"(/[A-Za-z0-9_.-]{1,255}){1,16}"
FOLDER_EXPECTED = "an absolute path of letters, digits, -, _ and ., such as /srv/volumes"
_SYSTEM = ("bin", "boot", "dev", "etc", "lib", "lib64", "proc", "root", "run", "sbin", "sys", "tmp", "usr", "var")
VERSION = r"[0-9]{1,3}\.[0-9]{1,3}(\.[0-9]{1,3})?"

_PORT = re.compile(r"[0-9]{1,5}")
_OUR_OWN = ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3")
_RESERVED = tuple(ipaddress.IPv4Network(each) for each in _OUR_OWN)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Login(NamedTuple):
    """An SSH login, `user@host:port`."""

    host: str
    user: str | None = None
    port: int | None = None

    @property
    def text(self) -> str:
        """As `parse_login` reads it."""
        user = f"{self.user}@" if self.user else ""
        if self.port is None:
            return f"{user}{self.host}"
        return f"{user}{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def address_of(text: str) -> Address | None:
    """Parse an IP address; None: it is a host name."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def host_fault(text: str) -> str | None:
    address = address_of(text)
    if address is not None:
        if "%" in text or address.is_unspecified or address.is_multicast:
            return f"{text} is not the address of a host"
        return None
    if re.fullmatch(r"[0-9.]+", text):
        return f"{text} is no IPv4 address, and a name of digits alone would be taken for one"
    if not re.fullmatch(HOST, text) or ".." in text:
        return f"expected {HOST_EXPECTED}"
    return None


def node_address_fault(text: str) -> str | None:
    """Why a node's address is invalid: pod networks are IPv4, so must it be."""
    address = address_of(text)
    if address is None or address.version != 4:
        return f"found {text[:60]!r}, expected an IPv4 address: pods have such ones"
    return host_fault(text)


def vip_fault(text: str) -> str | None:
    """Why a virtual IP is invalid: kube-vip announces it by ARP."""
    address = address_of(text)
    if address is None or address.version != 4 or any(address in network for network in _RESERVED):
        return f"found {text[:60]!r}, expected an IPv4 address of the control planes' own subnet that nobody has"
    return None


def node_fault(text: str) -> str | None:
    return "a part of the name between dots begins or ends with -, or is empty" if _has_bad_part(text) else None


def _has_bad_part(text: str) -> bool:
    return any(not part or part.startswith("-") or part.endswith("-") for part in text.split("."))


def parse_login(text: str) -> Login:
    """Parse `user@host:port`; an IPv6 address with a port is in brackets. Raises ValueError with the reason."""
    user, at, place = text.rpartition("@")
    if at and not re.fullmatch(USER, user):
        raise ValueError(f"before the @ stands no user: {USER_EXPECTED}")
    host, port = _split_port(place)
    if fault := host_fault(host):
        raise ValueError(fault)
    if port is not None and (not _PORT.fullmatch(port) or not 1 <= int(port) <= 65535):
        raise ValueError("the port is a number from 1 to 65535")
    return Login(host, user or None, int(port) if port is not None else None)


def _split_port(text: str) -> tuple[str, str | None]:
    if text.startswith("["):
        host, closing, rest = text[1:].partition("]")
        if not closing or (rest and not rest.startswith(":")) or ":" not in host:
            raise ValueError("brackets stand around an IPv6 address: [fd00::5]:22")
        return host, rest[1:] if rest else None
    if text.count(":") == 1:
        host, _, port = text.partition(":")
        return host, port
    return text, None


def login_fault(text: str) -> str | None:
    try:
        parse_login(text)
    except ValueError as error:
        return f"found {text[:80]!r}, expected {LOGIN_EXPECTED}: {error}"
    return None


def endpoint_fault(text: str) -> str | None:
    if login_fault(text) or "@" in text or text.count(":") > 1:
        return "expected the address before the control planes: host or host:port, no IPv6 address"
    return None


def node_name_of(host: str) -> str:
    """Derive a node's name from a host: its first label, or `10-0-0-5` for an address. Empty: none is possible."""
    text = host if address_of(host) else host.split(".")[0]
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:63].strip("-")


def url_fault(url: str) -> str | None:
    """Why a URL is invalid. The message never repeats it: it may hold a password."""
    if re.match(r"https?://[^/]*@", url):
        return "found a user or a password in the URL, which every copy of this file would show"
    if not re.fullmatch(URL, url):
        return f"expected {URL_EXPECTED}"
    return None


INSECURE_BUNDLE = "programs that come over http could be anybody's, expected https:// or a checksum"
INSECURE_HINT = "{location: URL, sha256: ...}: the sum that longboat cluster bundle prints"


def is_url(text: str) -> bool:
    return "://" in text


def location_fault(text: str) -> str | None:
    """Why the URL or path of a source is invalid."""
    return url_fault(text) if is_url(text) else None


def pinned_fault(text: str) -> str | None:
    """Why the location of a program, or of images, is invalid; a checksum may follow it, and must where it comes over
    http.
    """
    location, mark, _ = text.partition("#")
    if location.startswith("http://") and not mark:
        return "what comes over http could be anybody's, expected https://, a file here or URL#sha256=SUM"
    return _checksum_fault(text)


def key_fault(text: str) -> str | None:
    """Why the location of a package signing key is invalid: over http it could be replaced on the way."""
    if text.startswith("http://"):
        return "a key that comes over http could be anybody's, expected https:// or a file here"
    return location_fault(text)


def manifest_fault(text: str) -> str | None:
    """Why the location of a manifest is invalid: over http it could be replaced, and it is applied with all rights."""
    if text.startswith("http://"):
        return "a manifest that comes over http could be anybody's, expected https:// or a file here"
    return _checksum_fault(text)


def _checksum_fault(text: str) -> str | None:
    location, mark, checksum = text.partition("#")
    if mark and not re.fullmatch(r"sha256=[0-9a-f]{64}", checksum):
        return "expected #sha256= with 64 hexadecimal digits after the location, or nothing"
    return location_fault(location)


def folder_fault(text: str) -> str | None:
    """Why the path of a folder for volumes is invalid."""
    if not re.fullmatch(FOLDER, text) or any(part in (".", "..") for part in text.split("/")):
        return f"found {text[:60]!r}, expected {FOLDER_EXPECTED}"
    return None


def system_fault(text: str, *, is_on_nodes: bool) -> str | None:
    """Why volumes may not be in this folder. What belongs to the system is refused, on nodes with all below it: volumes
    are made there as root, and programs of the system delete what they do not know.
    """
    top = text.split("/")[1]
    is_system = top in _SYSTEM and (is_on_nodes or text == f"/{top}")
    if text != VolumeStorage().path and (is_system or (is_on_nodes and text == "/home")):
        return f"{text} is the system's, expected a folder for volumes such as /srv/volumes"
    return None


def network_fault(text: str) -> str | None:
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError:
        return _near_network(text)
    if any(network.overlaps(each) for each in _RESERVED):
        return f"{text} is reserved, expected a private network such as 10.244.0.0/16"
    return None


def _near_network(text: str) -> str:
    expected = "expected an IPv4 network such as 10.244.0.0/16"
    try:
        return f"{text} has bits of a host, {expected}; did you mean {ipaddress.IPv4Network(text, strict=False)}?"
    except ValueError:
        return f"found {text[:60]!r}, {expected}"
