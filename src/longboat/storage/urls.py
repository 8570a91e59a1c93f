"""The addresses that data comes from: what they mean, and how messages show them. Pure.

Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import urllib.parse
from typing import NamedTuple

from longboat.core.errors import Refused
from longboat.core.guards.lazy_pattern import lazy_pattern

STORES = ("s3", "gs", "az")
SCHEMES = ("http", "https", "file", *STORES)
_SHOWN = "/!$&'()*+,:;=@~"
_BUCKET = lazy_pattern(r"[A-Za-z0-9$][A-Za-z0-9._-]{1,221}")


class ObjectUrl(NamedTuple):
    """An object of a store, or (a key that ends with `/`, or none) all objects below it."""

    scheme: str
    bucket: str
    key: str

    @property
    def is_prefix(self) -> bool:
        return not self.key or self.key.endswith("/")

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{urllib.parse.quote(self.key, safe=_SHOWN)}"


def redacted(url: str) -> str:
    """The URL as anybody may see it: without its user, password, query and fragment, which may be secrets."""
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        return url.partition("://")[0][:10] + "://..."  # no URL: where its secret part begins is not known
    host = parts.netloc.rpartition("@")[2]
    return urllib.parse.urlunsplit((parts.scheme, host, parts.path, "", ""))


def is_secret(url: str) -> bool:
    """Whether whoever sees the whole URL can do what others cannot: it is signed, or holds a user and password."""
    return redacted(url) != url.partition("#")[0]


def file_name(url: str) -> str:
    """The last part of the URL's path, fit to be a file's name."""
    name = urllib.parse.unquote(urllib.parse.urlsplit(url).path).rstrip("/").rpartition("/")[2]
    return name if name not in ("", ".", "..") and name.isprintable() and len(name.encode()) <= 255 else "data"


def is_object_url(url: str) -> bool:
    return url.partition("://")[0] in STORES


def object_url(url: str) -> ObjectUrl:
    """The object that a URL of a store means. Its key is written as in any URL: a blank is %20. Raises Refused."""
    scheme, _, rest = url.partition("://")
    bucket, _, key = rest.partition("/")
    if "@" in bucket or ":" in bucket:
        raise Refused(
            f"{redacted(url)}: credentials do not belong into a URL", hint="give them as `secrets` of the job"
        )
    if "?" in key or "#" in key:
        raise Refused(
            f"{redacted(url)}: the URL of an object has no query",
            hint="write ? as %3F and # as %23 if the name has them",
        )
    if not _BUCKET.fullmatch(bucket):
        raise Refused(f"{redacted(url)}: this is no name of a bucket", hint=f"{scheme}://BUCKET/NAME")
    try:
        return ObjectUrl(scheme, bucket, urllib.parse.unquote(key, errors="strict"))
    except UnicodeDecodeError:
        raise Refused(f"{redacted(url)}: the name is not UTF-8") from None


def run_url(to: str, folder: str) -> str:
    """URL of a run's checkpoints: a folder of its own below `checkpoints.to`."""
    return f"{to.rstrip('/')}/{folder}"


def check_no_address(place: str) -> None:
    """Refuse an address where a name or a folder is meant; it may be a signed one, so it is shown without its query."""
    if "://" in place:
        raise Refused(
            f"{redacted(place)}: checkpoints are not fetched from such an address",
            hint="name a run, a folder, or an address that begins with s3://, gs:// or az://",
        )


def check_url(url: str) -> None:
    """Refuse what can never be fetched."""
    try:
        parts = urllib.parse.urlsplit(url)
        scheme, host, _ = parts.scheme, parts.hostname, None if is_object_url(url) else parts.port
    except ValueError:
        raise Refused("a data URL is not valid", hint="use http://, https:// or file://") from None
    if any(ord(char) <= 32 or ord(char) == 127 for char in url):
        raise Refused(f"{redacted(url)!r}: a URL has no blanks", hint="write them as %20")
    if scheme not in SCHEMES:
        raise Refused(
            f"{redacted(url)}: data comes from http, https, s3, gs, az or file URLs",
            hint="mount other stores as a volume",
        )
    if scheme in STORES:
        object_url(url)
    elif scheme == "file" and host not in (None, "localhost"):
        raise Refused(f"{redacted(url)}: a file URL is about this machine", hint="write file:///path/to/it")
    elif scheme != "file" and not (host and host.isascii()):
        raise Refused(f"{redacted(url)}: this URL names no host")


def check_import(url: str, sha256: str | None) -> None:
    """Refuse a data import that can never be done."""
    check_url(url)
    if sha256 is not None and is_object_url(url) and object_url(url).is_prefix:
        raise Refused(
            f"{redacted(url)}: a sha256 is that of one file, and this means all objects below a name",
            hint="leave `sha256` out, or name one object",
        )
