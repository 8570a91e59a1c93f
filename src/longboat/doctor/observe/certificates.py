"""Validity of X.509 certificates and JSON web tokens, read without a library for them. Pure; nothing is verified here.

Only the dates are read. Who signed a certificate is the affair of the TLS connection that it is used for.
"""

from __future__ import annotations

import base64
import binascii
import calendar
import json
import ssl
import time

from longboat.doctor.values import Validity

_UTC_TIME, _GENERALIZED_TIME, _VERSION = 0x17, 0x18, 0xA0
_BEFORE_VALIDITY = 3  # serial number, signature algorithm, issuer


def validity_of_pem(text: bytes) -> Validity | None:
    """Of the first certificate; None where there is none that can be read."""
    begin, end = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
    start, stop = text.find(begin), text.find(end)
    if start < 0 or stop < start:
        return None
    try:
        return validity_of(ssl.PEM_cert_to_DER_cert(text[start : stop + len(end)].decode("ascii")))
    except (ValueError, binascii.Error):
        return None


def validity_of(der: bytes) -> Validity | None:
    try:
        body = _children(_children(der)[0][1])
        fields = _children(body[0][1])
        if fields and fields[0][0] == _VERSION:  # absent in certificates of version 1
            fields = fields[1:]
        begins, ends = (_moment(*part) for part in _children(fields[_BEFORE_VALIDITY][1]))
    except (IndexError, ValueError):
        return None
    return Validity(begins=begins, ends=ends)


def _children(data: bytes) -> list[tuple[int, bytes]]:
    """Tag and content of each element in a row of DER elements. Raises ValueError, IndexError."""
    parts, at = [], 0
    while at < len(data):
        tag, length, at = data[at], data[at + 1], at + 2
        if length & 0x80:
            count = length & 0x7F
            if not 1 <= count <= 4:
                raise ValueError("no length of a certificate")
            length, at = int.from_bytes(data[at : at + count], "big"), at + count
        if at + length > len(data):
            raise ValueError("cut off")
        parts.append((tag, data[at : at + length]))
        at += length
    return parts


def _moment(tag: int, content: bytes) -> float:
    form = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}.get(tag)
    if form is None:
        raise ValueError("no time")
    return float(calendar.timegm(time.strptime(content.decode("ascii"), form)))


def token_end(token: str) -> float | None:
    """When a JSON web token ends; None: it is none, or says nothing about it."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        ends = claims.get("exp")
    except (ValueError, binascii.Error, AttributeError, RecursionError):
        return None
    return float(ends) if isinstance(ends, int | float) and not isinstance(ends, bool) else None
