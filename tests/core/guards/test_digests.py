"""The digest is SHA-256, whoever computes it."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import pytest

from longboat.core.guards import digests
from longboat.core.guards.digests import SMALL, sha256_of

TEXTS = [b"", b"abc", b"\0" * 1000, b"x" * SMALL, b"x" * (SMALL + 1)]


@pytest.mark.parametrize("names", [("_sha2", "_sha256"), ("no_such_module", "sys")], ids=["built-in", "without"])
def test_it_is_what_hashlib_computes(names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "_BUILT_IN", names)
    monkeypatch.delitem(sys.modules, "_hashlib", raising=False)
    assert [sha256_of(text) for text in TEXTS] == [hashlib.sha256(text).hexdigest() for text in TEXTS]


def test_openssl_is_not_loaded_for_little() -> None:
    load = "import sys; from longboat.core.guards.digests import sha256_of; sha256_of(b'x')"
    program = f"{load}; print('_hashlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
