"""The machine's address is found without `ip`, and made where there is only a loopback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from testbed import addresses

ROOT = Path(__file__).resolve().parents[2]
TRIE = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     |-- 127.0.0.1
        /32 host LOCAL
     |-- 169.254.7.7
        /32 host LOCAL
     |-- 172.17.0.0
        /16 link UNICAST
     |-- 172.17.0.1
        /32 host LOCAL
     |-- 172.17.255.255
        /32 link BROADCAST
Local:
     |-- 172.17.0.1
        /32 host LOCAL
"""
LONELY = """
from testbed import addresses
assert addresses.machine_address() is None
assert addresses.claim() == addresses.RESERVED == addresses.claim()
assert addresses.local_addresses(addresses.TRIE.read_text()) == [addresses.RESERVED]
assert addresses.outgoing_address() == addresses.RESERVED
# A network of its own, so clusters elsewhere on the machine do not count.
addresses.processes.marked = lambda: ["another cluster"]
addresses.release()
assert addresses.has_alias()
addresses.processes.marked = lambda: []
addresses.release()
assert addresses.machine_address() is None
addresses.release()
"""


def test_only_addresses_that_a_kubelet_takes() -> None:
    assert addresses.local_addresses(TRIE) == ["172.17.0.1"]
    assert addresses.local_addresses("") == []
    usable = {"10.1.2.3": True, "127.0.0.2": False, "0.0.0.0": False, "224.0.0.1": False, "169.254.1.1": False}
    assert {text: addresses.is_usable(text) for text in usable} == usable


def test_without_a_way_out_any_address_of_the_machine_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(addresses, "outgoing_address", lambda: None)
    monkeypatch.setattr(addresses, "TRIE", tmp_path / "trie")
    assert addresses.machine_address() is None
    (tmp_path / "trie").write_text(TRIE)
    assert addresses.machine_address() == "172.17.0.1"


@pytest.mark.pods
@pytest.mark.usefixtures("needs_pods")
def test_a_machine_with_only_a_loopback_gets_one_and_loses_it() -> None:
    command = ["unshare", "--net", sys.executable, "-c", LONELY]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
