"""The object store, as all of them offer it: read, look, list below a prefix, write (large objects in parts), remove.

`ObjectStore` has what all of them share: patience, what errors mean, credentials that run out. `s3`, `gcs` and `azure`
know how requests are written and signed. Standard library only and Python >= 3.8: this file also travels into pods,
inside the launcher.
"""

from __future__ import annotations

import abc
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from typing import IO, TYPE_CHECKING, Any, NamedTuple, NoReturn

from longboat.core.errors import EngineError, StoreUnavailable
from longboat.storage.http import HttpAnswer, HttpExchange, HttpRejected, HttpRequest, read_whole
from longboat.storage.transfers import BROKEN, LONGEST_PAUSE_S, WORTH_RETRYING, Changed, is_untrusted, reason_of
from longboat.storage.urls import ObjectUrl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from longboat.storage.transfers import Transfer

AT_ONCE = 4  # parts: one connection seldom fills a line, a few do
PART = 16 << 20
"""Of an object sent in parts; with four at once 64 MiB of memory, which is the trainer's."""
_MOST_PARTS = 9000
"""S3 takes 10,000."""
_NUMBER = re.compile(r"[0-9]{1,18}")
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
_EXPIRED = ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired", "InvalidToken")
_UNKNOWN_KEY = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidSecurity", "AuthenticationFailed")
_PASSING = ("RequestTimeout", "SlowDown", "ServerBusy", "OperationTimedOut", "InternalError")


class ObjectInfo(NamedTuple):
    """An object of the store."""

    key: str
    size: int
    tag: str
    changed: float  # seconds since 1970; 0: not told


class ObjectMissing(EngineError):
    """There is no such object."""


class ObjectMoved(EngineError):
    """The object is not the one any more that was listed."""


class ObjectStore(abc.ABC):
    """One bucket. Every call raises EngineError for what cannot be mended by trying again."""

    endpoint_hint = "check the name and whether this machine reaches it"
    keys_hint = ""

    def __init__(self, where: ObjectUrl, transfer: Transfer, exchange: HttpExchange) -> None:
        self.where = where
        self.transfer = transfer
        self.seeking = threading.Lock()  # one thread looks for credentials, the others wait for what it finds
        self._exchange = exchange

    # what each kind of store knows

    @abc.abstractmethod
    def request(
        self, method: str, key: str, query: Iterable[tuple[str, str]], headers: Mapping[str, str], body: bytes | None
    ) -> HttpRequest:
        """A request about an object (no key: about the bucket), signed unless there are no credentials."""

    @abc.abstractmethod
    def has_credentials(self) -> bool: ...

    def learn_from(self, rejected: HttpRejected, request: HttpRequest) -> bool:
        """Learn from the answer to a request; True when the same, signed anew, may now do better."""
        return False

    @abc.abstractmethod
    def listed(self, prefix: str) -> Iterator[ObjectInfo]:
        """All objects whose key begins so."""

    @abc.abstractmethod
    def put(self, key: str, data: bytes) -> None: ...

    @abc.abstractmethod
    def begin(self, key: str) -> str: ...

    @abc.abstractmethod
    def put_part(self, key: str, upload: str, number: int, data: bytes) -> str:
        """Number from 1. The answer is what `finish` wants to know of it."""

    @abc.abstractmethod
    def finish(self, key: str, upload: str, parts: list[str]) -> None: ...

    @abc.abstractmethod
    def abandon(self, key: str, upload: str) -> None: ...

    # what all can do

    def name_of(self, key: str) -> str:
        return str(self.where._replace(key=key))

    def open(self, key: str, headers: Mapping[str, str], timeout_s: float) -> Any:
        """One try to read an object. Raises Changed, one of BROKEN, or EngineError."""
        try:
            return self._send("GET", key, (), headers, None, timeout_s)
        except HttpRejected as rejected:
            if rejected.status in (412, 416):
                raise Changed("the object has changed") from None
            raise self.failure(rejected, key) from None

    def look(self, key: str) -> ObjectInfo | None:
        """None: there is no such object."""
        try:
            headers = self.ask("HEAD", key).headers
        except ObjectMissing:
            return None
        return ObjectInfo(key, size_of(headers.get("Content-Length")), headers.get("ETag") or "", _time(headers))

    def write(self, key: str, file: IO[bytes], size: int) -> None:
        """The object appears whole or not at all, in place of one of the same key."""
        if size <= 2 * PART:
            self.put(key, file.read(size))
            return
        upload = self.begin(key)
        part = max(PART, -(-size // _MOST_PARTS))
        count = -(-size // part)
        tags: list[str] = []
        try:
            with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
                for first in range(1, count + 1, AT_ONCE):
                    numbers = range(first, min(first + AT_ONCE, count + 1))
                    parts = [(number, file.read(part)) for number in numbers]
                    tags += pool.map(lambda each: self.put_part(key, upload, each[0], each[1]), parts)
            self.finish(key, upload, tags)
        except BaseException:
            self.abandon(key, upload)
            raise

    def remove(self, key: str) -> None:
        """What is not there is fine."""
        try:
            self.ask("DELETE", key)
        except ObjectMissing:
            pass

    def ask(
        self,
        method: str,
        key: str = "",
        query: Iterable[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        *,
        about: str = "",
    ) -> HttpAnswer:
        """The whole answer, patiently. Messages name the key, or what the request is about. Raises EngineError."""
        left, pause_s = self.transfer.attempts, self.transfer.backoff_s
        query = list(query)
        while True:
            left -= 1
            try:
                with self._send(method, key, query, headers or {}, body, self.transfer.timeout_s) as response:
                    return HttpAnswer(response.status, response.headers, read_whole(response))
            except HttpRejected as rejected:
                failure = self.failure(rejected, key or about)
                if isinstance(failure, EngineError) or left <= 0:
                    self.give_up(failure, key or about)
            except BROKEN as error:
                if is_untrusted(error) or left <= 0:
                    self.give_up(error, key or about)
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def give_up(self, error: Exception, key: str) -> NoReturn:
        if isinstance(error, EngineError):
            raise error from None
        reason = reason_of(error, self.transfer.timeout_s)
        if is_untrusted(error):
            raise EngineError(f"{self.name_of(key)}: the store cannot be trusted: {reason}") from None
        raise StoreUnavailable(f"{self.name_of(key)}: the store fails: {reason}", hint=self.endpoint_hint) from None

    def _send(
        self,
        method: str,
        key: str,
        query: Iterable[tuple[str, str]],
        headers: Mapping[str, str],
        body: bytes | None,
        timeout_s: float,
    ) -> Any:
        for _ in range(2):
            request = self.request(method, key, query, headers, body)
            try:
                return self._exchange.open(request, timeout_s)
            except HttpRejected as rejected:
                if not self.learn_from(rejected, request):
                    raise
        return self._exchange.open(self.request(method, key, query, headers, body), timeout_s)

    def failure(self, rejected: HttpRejected, key: str) -> Exception:
        """What an answer means: an EngineError, or a ConnectionError when another try may do better."""
        status, code, name = rejected.status, rejected.code, self.name_of(key)
        answer = f"{status} {code}".rstrip()
        if status in WORTH_RETRYING or code in _PASSING:
            return ConnectionError(f"the store answers {answer}")
        if code in _NO_BUCKET:
            return EngineError(
                f"{name}: there is no bucket {self.where.bucket}", hint=f"check its name. {self.endpoint_hint}"
            )
        if code == "RequestTimeTooSkewed":
            return EngineError(f"{name}: this machine's clock is wrong, says the store", hint="set the clock")
        if code in _EXPIRED:
            return EngineError(f"{name}: the credentials have expired ({answer})", hint=self.keys_hint)
        if status in (401, 403) or code in _UNKNOWN_KEY or code == "PublicAccessNotPermitted":
            return self._refused(name, code, answer)
        if status == 404:
            hint = "a name that ends with / means everything below it" if key else None
            return ObjectMissing(f"{name}: there is no such object", hint=hint)
        return EngineError(f"{name}: the store answers {answer}", hint=self.endpoint_hint)

    def _refused(self, name: str, code: str, answer: str) -> EngineError:
        if not self.has_credentials():
            return EngineError(f"{name}: not public, and no credentials were found ({answer})", hint=self.keys_hint)
        if code in _UNKNOWN_KEY:
            return EngineError(f"{name}: the store does not accept the credentials ({answer})", hint=self.keys_hint)
        return EngineError(
            f"{name}: the credentials do not allow this ({answer})",
            hint="grant them access to it, or give others; some stores say the same of an object that does not exist",
        )


class ObjectSource:
    """One object, to be downloaded: of any version, or (with `tag`, an ETag as listings have it) of that one only."""

    def __init__(self, store: ObjectStore, key: str, *, tag: str = "") -> None:
        self.shown = store.name_of(key)
        self.hint = store.endpoint_hint
        self._store = store
        self._key = key
        # Azure lists ETags without their quotes. A weak one (W/...) cannot be asked for.
        self._tag = "" if tag.startswith("W/") else f'"{tag}"' if tag and not tag.startswith('"') else tag

    def open(self, have: int, tag: str | None, timeout_s: float) -> Any:
        # Only an ETag can be asked for with If-Match; without one, from the start.
        wanted = self._tag or (tag if tag and tag.startswith('"') else "")
        headers = {"If-Match": wanted} if self._tag else {}
        if wanted and tag:
            headers = {"Range": f"bytes={have}-", "If-Match": wanted}
        try:
            return self._store.open(self._key, headers, timeout_s)
        except Changed:
            if self._tag and "Range" not in headers:
                raise ObjectMoved(f"{self.shown}: has changed since it was listed") from None
            raise


def size_of(text: str | None) -> int:
    """A size as a store tells it. Raises EngineError for what is none."""
    if text and not _NUMBER.fullmatch(text):
        raise EngineError("the store tells a size that is no number")
    return int(text or 0)


def _time(headers: Any) -> float:
    return http_time(headers.get("Last-Modified") or "")


def http_time(text: str) -> float:
    """Seconds since 1970 of a time as HTTP writes it; 0 when it is none."""
    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, IndexError):
        return 0.0
