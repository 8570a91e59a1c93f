"""Resumable transfers of a source into one file: retried with backoff, carried on where it broke off.

What a source is (a web server, an object store) and how it is asked is its own affair.
Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import ssl
import time
import urllib.error
from typing import TYPE_CHECKING, Any, NamedTuple

from longboat.bundles import durable
from longboat.bundles.disk import explain, write_all
from longboat.bundles.source.limits import size_text
from longboat.core.errors import EngineError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    Progress = Callable[[int, "int | None"], None]

    class Source(Protocol):
        shown: str
        hint: str  # for what does not mend itself by trying again

        def open(self, have: int, tag: str | None, timeout_s: float) -> Any:
            """The answer, from byte `have` on if `tag` is given and still holds. Raises one of BROKEN when another
            try may do better (Changed: from the start), EngineError when none can."""


CHUNK = 1 << 18
WORTH_RETRYING = (408, 425, 429, 500, 502, 503, 504)
BROKEN = (urllib.error.URLError, http.client.HTTPException, socket.timeout, ConnectionError, TimeoutError)
LONGEST_PAUSE_S = 30.0  # between attempts: a store that comes back is used within half a minute
SYNC_BYTES = 64 << 20
"""How much may have to be fetched again after a power loss. A disk writes it in well under a second."""
_MOST_CONNECTIONS = 1000
"""Each that brings some bytes starts the tries anew; a server that sends a few each time must not go on for ever."""
_MOST_NOTES = 1 << 17  # an ETag is a header, and those have at most 64 KiB


class Transfer(NamedTuple):
    """How patient a download is. Attempts are counted anew from every one that brought something."""

    timeout_s: float = 30.0  # without a byte: the connection is dead
    attempts: int = 5
    backoff_s: float = 0.5  # before the second attempt, doubling


DEFAULT_TRANSFER = Transfer()


class _Notes(NamedTuple):
    """What was told about the content that a file has the beginning of."""

    tag: str | None = None
    size: int | None = None
    boot: str | None = None  # of the machine, when the notes were written
    synced: int = 0  # bytes that were on the disk then


def tag_of(response: Any) -> str | None:
    """By which a source tells its content from another one; None: it does not."""
    tag: str | None = response.headers.get("ETag") or response.headers.get("Last-Modified")
    if tag and tag.startswith("W/"):
        tag = response.headers.get("Last-Modified")  # a weak tag does not vouch for the bytes
    return tag or None


class Changed(ConnectionError):
    """What is here does not fit what is there: once more, from the start."""


def reason_of(error: BaseException, timeout_s: float) -> str:
    """What went wrong with a connection, in words."""
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answers {error.code} {error.reason}"
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(inner, http.client.InvalidURL):
        return "it leads to an address that is none"  # the reason would show it, with all that is secret in it
    if isinstance(inner, (socket.timeout, TimeoutError)):
        return f"no answer for {timeout_s:g} s"
    if isinstance(inner, OSError) and inner.strerror and not isinstance(inner, ssl.SSLError):
        return inner.strerror  # without the number
    return str(inner) or type(inner).__name__


def is_untrusted(error: BaseException) -> bool:
    """A certificate that cannot be trusted will not be in a minute either."""
    return isinstance(getattr(error, "reason", None), ssl.SSLCertVerificationError)


class Download:
    """One content on its way into the file `place`. Notes about it lie beside it until it is whole."""

    def __init__(self, source: Source, place: str, transfer: Transfer, progress: Progress | None = None) -> None:
        self._source = source
        self._place = place
        self._transfer = transfer
        self._progress = progress
        self.tag: str | None = None  # of what was fetched last

    def run(self) -> None:
        self._drop_unsynced()
        left, pause_s = self._transfer.attempts, self._transfer.backoff_s
        for _ in range(_MOST_CONNECTIONS):
            before = self._received()
            try:
                self._attempt(before)
            except BROKEN as error:
                reason = reason_of(error, self._transfer.timeout_s)
                if is_untrusted(error):
                    raise EngineError(f"{self._source.shown}: cannot be trusted: {reason}") from None
                if self._received() > before:
                    left, pause_s = self._transfer.attempts, self._transfer.backoff_s
                left -= 1
                if left <= 0:
                    text = f"{self._source.shown}: cannot be fetched: {reason}"
                    raise StoreUnavailable(text, hint=self._source.hint) from None
                time.sleep(pause_s)
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
            else:
                self._forget()
                return
        raise EngineError(f"{self._source.shown}: the connection breaks off again and again")

    def _drop_unsynced(self) -> None:
        """Truncate to what was synced if the machine has restarted since: the rest may be garbage."""
        if os.path.exists(self._notes()):
            notes = self._recalled()
            if notes.boot != durable.boot_id() and self._received() > notes.synced:
                os.truncate(self._place, notes.synced)

    def _received(self) -> int:
        try:
            return os.stat(self._place).st_size
        except FileNotFoundError:
            return 0

    def _attempt(self, have: int) -> None:
        """One connection. Raises one of BROKEN when another one may do better."""
        tag = self._recall() if have else None
        try:
            with self._source.open(have, tag, self._transfer.timeout_s) as response:
                self._receive(response, have)
        except Changed:
            self._forget()
            if os.path.exists(self._place):
                os.unlink(self._place)
            raise

    def _receive(self, response: Any, have: int) -> None:
        resumes = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if response.status == 206 and not resumes:
            raise ConnectionError("the server answers with another part than asked for")
        done = have if resumes else 0
        length = response.headers.get("Content-Length", "")
        total = done + int(length) if length.isdigit() and length.isascii() else None
        if resumes and not self._is_same(response, total):
            raise Changed("the server goes on with another content")
        notes = self._remember(response, total, done)
        self._check_room(total, done)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | (0 if resumes else os.O_TRUNC)
            fd = os.open(self._place, flags, 0o666)
            try:
                os.lseek(fd, done, os.SEEK_SET)
                synced = done
                for data in iter(lambda: self._read(response), b""):
                    write_all(fd, data)
                    done += len(data)
                    if done - synced >= SYNC_BYTES:
                        durable.sync(fd)
                        synced = done
                        self._write_notes(notes._replace(synced=synced))
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
            data: bytes = response.read1(CHUNK)
        except OSError as error:
            raise ConnectionError(str(error) or type(error).__name__) from None
        return data

    def _check_room(self, total: int | None, done: int) -> None:
        free = shutil.disk_usage(os.path.dirname(self._place)).free
        if total is not None and total - done > free:
            raise no_room(self._source.shown, total, free)

    def _is_same(self, response: Any, total: int | None) -> bool:
        """Whether a part belongs to what is here: some servers send any part asked for, whatever the condition."""
        before = self._recalled()
        now = (tag_of(response), total)
        return all(new is None or old is None or new == old for old, new in zip((before.tag, before.size), now))

    def _remember(self, response: Any, total: int | None, done: int) -> _Notes:
        """Keep what the server says about the content: an ETag, or else the time of the last change, and its size."""
        if done:
            durable.sync_file(self._place)  # what is carried on with counts as synced from now on
        self.tag = tag_of(response)
        notes = _Notes(self.tag, total, durable.boot_id(), done)
        self._write_notes(notes)
        return notes

    def _write_notes(self, notes: _Notes) -> None:
        """Write the notes, unsynced: if they are lost, the download starts anew."""
        with open(self._notes(), "wb", opener=not_through_links) as file:
            file.write(json.dumps(notes._asdict()).encode())

    def _recall(self) -> str | None:
        return self._recalled().tag

    def _recalled(self) -> _Notes:
        try:
            with open(self._notes(), "rb") as file:
                notes = json.loads(file.read(_MOST_NOTES))
            tag, size = notes.get("tag"), notes.get("size")
            boot, synced = notes.get("boot"), notes.get("synced")
            return _Notes(
                tag if isinstance(tag, str) else None,
                size if isinstance(size, int) else None,
                boot if isinstance(boot, str) else None,
                max(0, synced) if isinstance(synced, int) else 0,
            )
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return _Notes()

    def _forget(self) -> None:
        try:
            os.unlink(self._notes())
        except FileNotFoundError:
            pass

    def _notes(self) -> str:
        return self._place + ".notes"


def not_through_links(path: str, flags: int) -> int:
    """An opener for files in folders that others may write to, too: a link that they put there is not followed."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def no_room(subject: str, size: int, free: int) -> EngineError:
    return EngineError(
        f"{subject}: it is {size_text(size)}, and {size_text(free)} are free for it",
        hint="free some space, or send `to` to a larger disk",
    )
