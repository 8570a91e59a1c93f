"""Files that look like secrets, by their name or by their content. Pure; leaving them out is `snapshot`'s work.

A guess that errs on the careful side: a file named here can always be included by its exact path.
"""

from __future__ import annotations

from longboat.core.guards.lazy_pattern import lazy_pattern

MAX_SCANNED_BYTES = 256 << 10
"""Only small text files are looked into: that is where keys live, and large ones would cost time."""

_HARMLESS_ENDINGS = (".example", ".sample", ".template", ".dist", ".defaults", ".pub")
_NAMES = frozenset(
    (
        ".env",
        ".netrc",
        "_netrc",
        ".git-credentials",
        ".pgpass",
        "credentials.json",
        "application_default_credentials.json",
        "kubeconfig",
    )
)
_ENDINGS = (".pem", ".key", ".p12", ".pfx", ".kdbx", ".kubeconfig", ".ppk")
_BEGINNINGS = (".env.", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "client_secret")
_PLACES = (".aws/credentials", ".kube/config", ".docker/config.json")

_TOKENS: tuple[tuple[bytes, str, bytes], ...] = (
    (b"PRIVATE KEY", "a private key", rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"),
    (b"AKIA", "an AWS access key", rb"\bAKIA(?![0-9A-Z]{9}EXAMPLE)[0-9A-Z]{16}\b"),
    (b"ASIA", "an AWS access key", rb"\bASIA(?![0-9A-Z]{9}EXAMPLE)[0-9A-Z]{16}\b"),
    (b"gh", "a GitHub token", rb"\bgh[pousr]_[A-Za-z0-9]{36,}"),
    (b"github_pat_", "a GitHub token", rb"\bgithub_pat_[A-Za-z0-9_]{40,}"),
    (b"glpat-", "a GitLab token", rb"\bglpat-[A-Za-z0-9_-]{20,}"),
    (b"hf_", "a Hugging Face token", rb"\bhf_[A-Za-z0-9]{30,}"),
    (b"sk-", "an API key", rb"(?<![A-Za-z0-9_-])sk-(?:(?:proj|ant|svcacct|or-v1)-[A-Za-z0-9_-]{20,}|[A-Za-z0-9]{32,})"),
    (b"xox", "a Slack token", rb"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    (b"AIza", "a Google API key", rb"\bAIza[0-9A-Za-z_-]{35}"),
    (b"npm_", "an npm token", rb"\bnpm_[A-Za-z0-9]{36}"),
    (b"pypi-", "a PyPI token", rb"\bpypi-AgE[A-Za-z0-9_-]{50,}"),
)
_MATCHERS = tuple((needle, what, lazy_pattern(pattern)) for needle, what, pattern in _TOKENS)
_CREDENTIALS = {
    ".npmrc": lazy_pattern(rb"(?m)^[^#;\n]*_(?:authToken|auth|password)\s*="),
    ".pypirc": lazy_pattern(rb"(?m)^\s*password\s*[:=]\s*\S"),
}


def named_like_one(path: str) -> bool:
    """Whether the name alone says that the file holds a secret."""
    name = path.rpartition("/")[2].lower()
    if name.endswith(_HARMLESS_ENDINGS):
        return False
    return (
        name in _NAMES
        or name.endswith(_ENDINGS)
        or name.startswith(_BEGINNINGS)
        or any(path == place or path.endswith("/" + place) for place in _PLACES)
    )


def found_in(path: str, data: bytes) -> str:
    """What secret the content shows, in words; "" when it shows none."""
    if len(data) > MAX_SCANNED_BYTES or b"\0" in data:
        return ""
    credentials = _CREDENTIALS.get(path.rpartition("/")[2])
    if credentials is not None and credentials.search(data):
        return "a password or token"
    return token_in(data)


def token_in(data: bytes) -> str:
    """What key or token is in the text, in words; "" when there is none."""
    for needle, kind, matcher in _MATCHERS:
        if needle in data and matcher.search(data):
            return kind
    return ""
