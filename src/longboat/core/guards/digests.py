"""SHA-256 of what is small, without OpenSSL: to load that library takes longer than everything else a small run hashes.

Files are hashed by `hashlib`, which is faster for them.
"""

from __future__ import annotations

import sys
from importlib import import_module

SMALL = 1 << 16  # bytes: from there on OpenSSL's speed outweighs the time to load it
_BUILT_IN = ("_sha2", "_sha256")  # of Python 3.12 and later, of older ones; either may be missing


def sha256_of(data: bytes) -> str:
    """The digest in hex."""
    if len(data) <= SMALL and "_hashlib" not in sys.modules:
        for name in _BUILT_IN:
            try:
                digest: str = import_module(name).sha256(data).hexdigest()
            except (ImportError, AttributeError):
                continue
            return digest
    import hashlib

    return hashlib.sha256(data).hexdigest()
