"""Secrets that the pods of a service mount have names that nobody can take beforehand."""

from __future__ import annotations

import json
import re

from tests.serving.kubernetes.test_services import objects_of


def test_names_of_a_services_secrets_cannot_be_guessed() -> None:
    """What pods mount follows from a random part, of 64 bits, and from nothing that others know alone."""
    kept = [objects_of("ns", nonce=nonce) for nonce in ("0123456789abcdef", "fedcba9876543210")]
    secrets = [{body["metadata"]["name"] for body in bodies if body["kind"] == "Secret"} for bodies in kept]
    assert secrets[0] and not secrets[0] & secrets[1]
    for nonce, bodies in zip(("0123456789abcdef", "fedcba9876543210"), kept, strict=True):
        mounted = re.findall(r'"secretName": "([^"]+)"', json.dumps(bodies))
        assert mounted and all(nonce in name for name in mounted), mounted
