"""The machine's own address, found and if need be made without the `ip` command.

A kubelet wants an address that is no loopback one and belongs to an interface. A machine that has nothing but `lo` gets
one more there, from the range that is reserved for documentation, and loses it again with the last cluster. Not here:
the networks of clusters that have one of their own (`network`).
"""

from __future__ import annotations

import fcntl
import ipaddress
import re
import socket
import struct
from pathlib import Path

from testbed import processes
from testbed.errors import TestbedError

RESERVED = "192.0.2.1"
ALIAS = "lo:longboat"
TRIE = Path("/proc/net/fib_trie")
GET_ADDRESS, SET_ADDRESS, SET_MASK = 0x8915, 0x8916, 0x891C
GET_FLAGS, SET_FLAGS = 0x8913, 0x8914
UP = 0x1
_LOCAL = re.compile(r"\|-- (\S+)\n\s+/32 host LOCAL")


def machine_address() -> str | None:
    """The address by which the machine would call somebody else; else any that is not a loopback one."""
    called = outgoing_address()
    if called:
        return called
    try:
        own = local_addresses(TRIE.read_text())
    except OSError:
        return None
    return own[0] if own else None


def outgoing_address() -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Sends nothing: the kernel only chooses the route.
            probe.connect((RESERVED, 9))
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    return address if is_usable(address) else None


def is_usable(text: str) -> bool:
    """Whether a kubelet takes it for its node's address."""
    address = ipaddress.IPv4Address(text)
    return not (address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast)


def local_addresses(trie: str) -> list[str]:
    """The machine's usable addresses, as the kernel's table of routes lists them."""
    return [address for address in dict.fromkeys(_LOCAL.findall(trie)) if is_usable(address)]


def claim() -> str:
    """The machine's address; one is made where there is none."""
    address = machine_address()
    if address is None:
        add_to_loopback()
        address = RESERVED
    return address


def release() -> None:
    """Take the address away that `claim` has made, unless a cluster still runs."""
    if has_alias() and not processes.marked():
        set_flags(ALIAS, get_flags("lo") & ~UP)


def add_to_loopback() -> None:
    try:
        set_flags("lo", get_flags("lo") | UP)
        control(SET_ADDRESS, ALIAS, socket_address(RESERVED))
        control(SET_MASK, ALIAS, socket_address("255.255.255.255"))
    except OSError as error:
        raise TestbedError(f"this machine has no address, and none could be added to its loopback: {error}") from error


def has_alias() -> bool:
    try:
        answer = control(GET_ADDRESS, ALIAS, b"\0" * 16)
    except OSError:
        return False
    return socket.inet_ntoa(answer[20:24]) == RESERVED


def socket_address(text: str) -> bytes:
    return struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(text))


def get_flags(interface: str) -> int:
    flags: int = struct.unpack_from("=H", control(GET_FLAGS, interface, b"\0" * 16), 16)[0]
    return flags


def set_flags(interface: str, flags: int) -> None:
    """For an alias, to take UP away is to remove its address."""
    control(SET_FLAGS, interface, struct.pack("=H14x", flags))


def control(request: int, interface: str, value: bytes) -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        return fcntl.ioctl(handle, request, struct.pack("16s16s8x", interface.encode(), value))
