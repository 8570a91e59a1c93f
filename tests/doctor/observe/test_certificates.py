"""Dates of certificates and tokens, and hostile ones."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import pytest

from longboat.doctor.observe.certificates import token_end, validity_of, validity_of_pem

DAY = 86400.0


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("certificate")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-subj", "/CN=lab", "-days", "30", "-keyout", str(folder / "key"), "-out", str(folder / "pem")]
    subprocess.run(command, check=True, capture_output=True)
    return Path(folder / "pem").read_bytes()


def test_a_certificate(certificate: bytes) -> None:
    validity = validity_of_pem(b"a comment\n" + certificate + certificate)
    assert validity is not None and validity.ends - validity.begins == 30 * DAY


def test_what_is_none(certificate: bytes) -> None:
    import ssl

    der = ssl.PEM_cert_to_DER_cert(certificate.decode())
    for length in range(0, len(der), 7):
        assert validity_of(der[:length]) is None
    for text in (b"", b"-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----", b"-----END CERTIFICATE-----"):
        assert validity_of_pem(text) is None
    assert validity_of(b"\x30\x84\xff\xff\xff\xff") is None and validity_of(b"\x30") is None


def token(claims: object) -> str:
    return ".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({}, claims, {})
    )


def test_tokens() -> None:
    assert token_end(token({"exp": 1_700_000_000})) == 1.7e9
    for text in ("", "a.b.c", token({}), token({"exp": "soon"}), token({"exp": True}), token([1]), "a.!!.c"):
        assert token_end(text) is None
