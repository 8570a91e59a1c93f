"""Addresses of nodes: a block of its own for every run."""

from __future__ import annotations

import ipaddress
import socket
import sys
from pathlib import Path

import pytest

from longboat.engines.local.queue import slots
from longboat.engines.local.queue.slots import SHARED, AddressBlocks, addresses_in
from longboat.engines.shared.home import Home

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has all of 127/8")


def test_every_node_has_an_address_of_its_own() -> None:
    for blocks in (SHARED, (300, 17, 4000, 999)):
        found = addresses_in(blocks, 1000)
        assert len(set(found)) == 1000
        assert all(ipaddress.ip_address(address).is_loopback for address in found)
        assert not any(address.endswith((".0", ".1", ".255")) for address in found)
    assert addresses_in(SHARED, 2) == ["127.0.0.2", "127.0.0.3"]


def test_two_runs_may_listen_on_the_same_port(tmp_path: Path) -> None:
    home, one, two = Home(tmp_path), AddressBlocks(), AddressBlocks()
    first, second = one.take(home, 2), two.take(home, 300)
    assert len({*first, *second}) == 302
    with socket.socket() as mine, socket.socket() as theirs:
        mine.bind((first[0], 0))
        mine.listen()
        theirs.bind((second[0], mine.getsockname()[1]))
        theirs.listen()
    one.release()
    two.release()


def test_where_all_blocks_are_taken_the_shared_one_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "ADDRESS_BLOCKS", range(256, 257))
    home, one, two = Home(tmp_path), AddressBlocks(), AddressBlocks()
    assert one.take(home, 1) == ["127.1.0.2"]
    assert two.take(home, 1) == ["127.0.0.2"]
    one.release()
    two.release()
    assert two.take(home, 1) == ["127.1.0.2"]
    two.release()
