"""HTTP: one request to an object store, or to whoever hands out credentials for it, and its answer. Signs nothing.

Redirects are not followed: a signed request is good for one host only.
Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree as ET
from xml.parsers import expat

from longboat.core.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MOST_WORDS = 1 << 20  # of an answer that tells what went wrong
MOST_TEXT = 64 << 20  # of any other answer that is read whole; the longest page of a listing has about 20 MiB
MOST_S = 600.0
"""The longest time for such an answer. S3 may take minutes to put an upload together, and sends blanks meanwhile."""
_MOST_ELEMENTS = 1 << 20  # a page lists at most 5,000 objects, each in about 30 elements
_MOST_DEPTH = 32  # answers of stores are five deep
_BLANKS = b" \t\r\n"


class HttpRequest(NamedTuple):
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None
    region: str = ""  # that it was signed for, where the store has regions


class HttpAnswer(NamedTuple):
    status: int
    headers: Any
    body: bytes


class HttpRejected(Exception):
    """The server answers, and says no."""

    def __init__(self, status: int, code: str, headers: Any, body: bytes = b"") -> None:
        super().__init__(f"the store answers {status} {code}".rstrip())
        self.status = status
        self.code = code
        self.headers = headers
        self.body = body


class HttpExchange:
    """A way to servers: through the proxies of the environment, or (`direct`) past them."""

    def __init__(self, *, direct: bool = False, ca_bundle: str | None = None) -> None:
        self._opener = urllib.request.OpenerDirector()
        self._opener.add_handler(urllib.request.ProxyHandler({} if direct else None))
        self._opener.add_handler(urllib.request.HTTPHandler())
        try:
            context = ssl.create_default_context(cafile=ca_bundle) if ca_bundle else None
        except OSError as error:
            raise EngineError(f"AWS_CA_BUNDLE: {ca_bundle}: {error.strerror or error}") from None
        self._opener.add_handler(urllib.request.HTTPSHandler(context=context))
        self._opener.add_handler(urllib.request.HTTPDefaultErrorHandler())
        self._opener.add_handler(urllib.request.HTTPErrorProcessor())

    def open(self, request: HttpRequest, timeout_s: float) -> Any:
        """The answer, to be read and closed. Raises Rejected; or what urllib raises when there is no answer."""
        headers = {"User-Agent": "longboat", "Accept-Encoding": "identity", **request.headers}
        asked = urllib.request.Request(request.url, request.body, headers, method=request.method)
        try:
            return self._opener.open(asked, timeout=timeout_s)
        except urllib.error.HTTPError as error:
            with error:
                body = b"" if request.method == "HEAD" else error.read(_MOST_WORDS)
            raise HttpRejected(error.code, code_of(error.headers, body), error.headers, body) from None

    def ask(self, request: HttpRequest, timeout_s: float) -> HttpAnswer:
        """The same, with the answer read whole."""
        with self.open(request, timeout_s) as response:
            return HttpAnswer(response.status, response.headers, read_whole(response))


def read_whole(response: Any, most: int = MOST_TEXT, most_s: float = MOST_S) -> bytes:
    """The body of an answer. Raises ConnectionError for one that is too long or takes too long."""
    parts: list[bytes] = []
    size, deadline = 0, time.monotonic() + most_s
    expected = response.length  # None: not told
    while size != expected:
        data = response.read1(1 << 16)
        if not data:
            break
        parts.append(data)
        size += len(data)
        if size > most:
            raise ConnectionError(f"the answer is longer than {most >> 20} MiB")
        if time.monotonic() > deadline:
            raise ConnectionError(f"the answer takes longer than {most_s:.0f} s")
    if expected is not None and size < expected:
        raise ConnectionError(f"the connection broke off after {size} of {expected} bytes")
    return b"".join(parts)


def code_of(headers: Any, body: bytes) -> str:
    """The store's own word for what went wrong: `NoSuchKey`. Never its message, which may hold what was signed."""
    code = headers.get("x-ms-error-code") if headers is not None else None
    if not code:
        try:
            code = text_of(parse_xml(body), "Code")
        except ValueError:
            code = ""
    return code if code.isalnum() and len(code) <= 64 else ""


def parse_xml(data: bytes) -> ET.Element:
    """Raises ValueError. Blanks before it are no part of it: stores send them to keep a connection alive.

    The parser itself refuses document types and declarations of entities, whatever the encoding, before one is used.
    """
    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    tree = _XmlTree()
    parser.StartElementHandler = tree.start
    parser.EndElementHandler = tree.end
    parser.CharacterDataHandler = tree.builder.data
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = _refuse
    try:
        parser.Parse(data.lstrip(_BLANKS), True)
        return tree.builder.close()
    except (expat.ExpatError, AssertionError) as error:
        raise ValueError(str(error)) from None


def _refuse(*_: object) -> None:
    raise ValueError("a document type is not expected")


class _XmlTree:
    """Elements as the parser finds them, as long as they are few and shallow enough."""

    def __init__(self) -> None:
        self.builder = ET.TreeBuilder()
        self._count = self._depth = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        self._depth += 1
        if self._count > _MOST_ELEMENTS or self._depth > _MOST_DEPTH:
            raise ValueError("more elements than an answer has")
        self.builder.start(name, attributes)

    def end(self, name: str) -> None:
        self._depth -= 1
        self.builder.end(name)


def children(element: ET.Element, name: str) -> list[ET.Element]:
    """Direct children of this name, in any namespace."""
    return [child for child in element if child.tag.rpartition("}")[2] == name]


def text_of(element: ET.Element, name: str) -> str:
    matches = children(element, name)
    return (matches[0].text or "") if matches else ""


def quoted(text: str, safe: str = "") -> str:
    """As signatures want it: everything but letters, digits and -._~ is escaped."""
    return urllib.parse.quote(text, safe=safe + "-_.~")


def query_text(query: Iterable[tuple[str, str]]) -> str:
    return "&".join(f"{quoted(name)}={quoted(value)}" for name, value in sorted(query))
