"""Fetches one URL into one file: http, https and file; retried, resumed where it broke off. Knows nothing of archives.

Messages name a URL without its user, password and query, which may be secrets.
Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import shutil
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from longboat.bundles.disk import errors_explained, explain, write_all
from longboat.bundles.limits import size_text
from longboat.core.errors import EngineError, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    Progress = Callable[[int, "int | None"], None]

_CHUNK = 1 << 18
_SAFE = "%/:=&?~#+!$,;'@()*[]"  # may stand in a URL as they are; what is quoted already stays so
_MOST_CONNECTIONS = 1000
_WORTH_RETRYING = (408, 425, 429, 500, 502, 503, 504)
_BROKEN = (urllib.error.URLError, http.client.HTTPException, socket.timeout, ConnectionError, TimeoutError)


class Transfer(NamedTuple):
    """How patient a download is. Attempts are counted anew from every one that brought something."""

    timeout_s: float = 30.0
    attempts: int = 5
    backoff_s: float = 0.5  # before the second attempt, doubling


DEFAULT_TRANSFER = Transfer()


def shown(url: str) -> str:
    """The URL as messages may show it."""
    parts = urllib.parse.urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urllib.parse.urlunsplit((parts.scheme, host, parts.path, "", ""))


def file_name(url: str) -> str:
    """The last part of the URL's path, fit to be a file's name."""
    name = urllib.parse.unquote(urllib.parse.urlsplit(url).path).rstrip("/").rpartition("/")[2]
    return name if name not in ("", ".", "..") and name.isprintable() and len(name.encode()) <= 255 else "data"


def check_url(url: str) -> None:
    """Refuse what can never be fetched."""
    try:
        parts = urllib.parse.urlsplit(url)
        scheme, host, _ = parts.scheme, parts.hostname, parts.port
    except ValueError:
        raise Refused("a data URL is not valid", hint="use http://, https:// or file://") from None
    if any(ord(char) <= 32 or ord(char) == 127 for char in url):
        raise Refused(f"{shown(url)!r}: a URL has no blanks", hint="write them as %20")
    if scheme not in ("http", "https", "file"):
        raise Refused(f"{shown(url)}: data comes from http, https or file URLs", hint="mount other stores as a volume")
    if scheme == "file" and host not in (None, "localhost"):
        raise Refused(f"{shown(url)}: a file URL is about this machine", hint="write file:///path/to/it")
    if scheme != "file" and not (host and host.isascii()):
        raise Refused(f"{shown(url)}: this URL names no host")


def fetch(url: str, place: str, *, transfer: Transfer = DEFAULT_TRANSFER, progress: Progress | None = None) -> None:
    """Bring the content of the URL to the file `place`. What an earlier call left there is carried on where the server
    can tell that it is still the same content. Raises EngineError."""
    check_url(url)
    if urllib.parse.urlsplit(url).scheme == "file":
        _copy_local(url, place, progress)
        return
    with errors_explained(place):
        _Download(url, place, transfer, progress).run()


def _copy_local(url: str, place: str, progress: Progress | None) -> None:
    source = urllib.parse.unquote(urllib.parse.urlsplit(url).path)
    try:
        with open(source, "rb") as reader, open(place, "wb") as writer:
            total, done = os.fstat(reader.fileno()).st_size, 0
            while data := reader.read(_CHUNK):
                writer.write(data)
                done += len(data)
                if progress is not None:
                    progress(done, total)
    except OSError as error:
        if error.filename == source:
            raise EngineError(f"{source}: cannot be read: {error.strerror}") from None
        raise explain(error, place) from None


class _OnlyWeb(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if urllib.parse.urlsplit(newurl).scheme not in ("http", "https"):
            raise EngineError(f"{shown(req.full_url)}: the server sends to a place that is not http or https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> urllib.request.OpenerDirector:
    """Neither files nor ftp: a server must not make this machine read its own disk."""
    opener = urllib.request.OpenerDirector()
    opener.add_handler(urllib.request.ProxyHandler())
    opener.add_handler(urllib.request.HTTPHandler())
    opener.add_handler(urllib.request.HTTPSHandler())
    opener.add_handler(urllib.request.HTTPDefaultErrorHandler())
    opener.add_handler(urllib.request.HTTPErrorProcessor())
    opener.add_handler(_OnlyWeb())
    return opener


class _Download:
    def __init__(self, url: str, place: str, transfer: Transfer, progress: Progress | None) -> None:
        parts = urllib.parse.urlsplit(url)
        user, _, host = parts.netloc.rpartition("@")
        self._user = urllib.parse.unquote(user)
        path, query = (urllib.parse.quote(text, safe=_SAFE) for text in (parts.path or "/", parts.query))
        self._url = urllib.parse.urlunsplit((parts.scheme, host, path, query, ""))
        self._shown = shown(url)
        self._place = place
        self._transfer = transfer
        self._progress = progress
        self._opener = _opener()

    def run(self) -> None:
        left, pause_s = self._transfer.attempts, self._transfer.backoff_s
        for _ in range(_MOST_CONNECTIONS):
            before = self._have()
            try:
                self._attempt(before)
            except _BROKEN as error:
                reason = self._reason(error)
                if isinstance(getattr(error, "reason", None), ssl.SSLCertVerificationError):
                    raise EngineError(f"{self._shown}: cannot be trusted: {reason}") from None
                if self._have() > before:
                    left, pause_s = self._transfer.attempts, self._transfer.backoff_s
                left -= 1
                if left <= 0:
                    raise EngineError(f"{self._shown}: cannot be fetched: {reason}", hint="try again later") from None
                time.sleep(pause_s)
                pause_s = min(pause_s * 2, 30.0)
            else:
                self._forget()
                return
        raise EngineError(f"{self._shown}: the connection breaks off again and again")

    def _have(self) -> int:
        try:
            return os.stat(self._place).st_size
        except FileNotFoundError:
            return 0

    def _attempt(self, have: int) -> None:
        """One connection. Raises one of _BROKEN when another one may do better."""
        tag = self._recall() if have else None
        request = urllib.request.Request(self._url, headers={"User-Agent": "longboat", "Accept-Encoding": "identity"})
        if self._user:
            login = base64.b64encode(self._user.encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {login}")
        if tag:
            request.add_header("Range", f"bytes={have}-")
            request.add_header("If-Range", tag)
        try:
            with self._opener.open(request, timeout=self._transfer.timeout_s) as response:
                self._receive(response, have)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416:  # what is here does not fit what is there: once more, from the start
                self._forget()
                os.unlink(self._place)
                raise ConnectionError("the content has changed") from None
            if error.code not in _WORTH_RETRYING:
                raise EngineError(f"{self._shown}: the server answers {error.code} {error.reason}") from None
            raise

    def _receive(self, response: Any, have: int) -> None:
        resumes = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if response.status == 206 and not resumes:
            raise ConnectionError("the server answers with another part than asked for")
        done = have if resumes else 0
        length = response.headers.get("Content-Length", "")
        total = done + int(length) if length.isdigit() else None
        self._remember(response)
        self._check_room(total, done)
        try:
            fd = os.open(self._place, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (0 if resumes else os.O_TRUNC), 0o666)
            try:
                os.lseek(fd, done, os.SEEK_SET)
                for data in iter(lambda: self._read(response), b""):
                    write_all(fd, data)
                    done += len(data)
                    if self._progress is not None:
                        self._progress(done, total)
            finally:
                os.close(fd)
        except (ConnectionError, TimeoutError):
            raise
        except OSError as error:
            raise explain(error, self._place) from None
        if total is not None and done < total:
            raise ConnectionError(f"the connection broke off after {done:,} of {total:,} bytes")

    def _read(self, response: Any) -> bytes:
        try:
            # read1 hands over what has arrived, so little is lost when the connection breaks.
            data: bytes = response.read1(_CHUNK)
        except OSError as error:
            raise ConnectionError(str(error) or type(error).__name__) from None
        return data

    def _check_room(self, total: int | None, done: int) -> None:
        free = shutil.disk_usage(os.path.dirname(self._place)).free
        if total is not None and total - done > free:
            raise EngineError(
                f"{self._shown}: it is {size_text(total)}, and {size_text(free)} are free for it",
                hint="free some space, or send `to` to a larger disk",
            )

    def _reason(self, error: BaseException) -> str:
        if isinstance(error, urllib.error.HTTPError):
            return f"the server answers {error.code} {error.reason}"
        inner = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(inner, (socket.timeout, TimeoutError)):
            return f"no answer for {self._transfer.timeout_s:g} s"
        return str(inner) or type(inner).__name__

    def _remember(self, response: Any) -> None:
        """Keep what the server says about the content: an ETag, or else the time of the last change."""
        tag = response.headers.get("ETag") or response.headers.get("Last-Modified")
        if tag and tag.startswith("W/"):
            tag = response.headers.get("Last-Modified")  # a weak tag does not vouch for the bytes
        with open(self._notes(), "wb") as file:
            file.write(json.dumps({"tag": tag}).encode())

    def _recall(self) -> str | None:
        try:
            with open(self._notes(), "rb") as file:
                tag = json.loads(file.read())["tag"]
            return tag if isinstance(tag, str) else None
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def _forget(self) -> None:
        try:
            os.unlink(self._notes())
        except FileNotFoundError:
            pass

    def _notes(self) -> str:
        return self._place + ".notes"
