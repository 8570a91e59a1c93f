"""A web server as a source of data: one GET, resumed with If-Range where the server can tell that nothing changed.

Standard library only and Python >= 3.8: this file also travels into pods, inside the launcher.
"""

from __future__ import annotations

import base64
import urllib.error
import urllib.parse
import urllib.request
from typing import IO, Any

from longboat.core.errors import EngineError
from longboat.storage.transfers import WORTH_RETRYING, Changed
from longboat.storage.urls import redacted

_SAFE = "%/:=&?~#+!$,;'@()*[]"  # may stand in a URL as they are; what is quoted already stays so


class _OnlyWeb(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if urllib.parse.urlsplit(newurl).scheme not in ("http", "https"):
            raise EngineError(f"{redacted(req.full_url)}: the server sends to a place that is not http or https")
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


class WebSource:
    """What an http or https URL leads to."""

    hint = "try again later"

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        user, _, host = parts.netloc.rpartition("@")
        self._user = urllib.parse.unquote(user)
        path, query = (urllib.parse.quote(text, safe=_SAFE) for text in (parts.path or "/", parts.query))
        self._url = urllib.parse.urlunsplit((parts.scheme, host, path, query, ""))
        self._opener = _opener()
        self.shown = redacted(url)

    def open(self, have: int, tag: str | None, timeout_s: float) -> Any:
        request = urllib.request.Request(self._url, headers={"User-Agent": "longboat", "Accept-Encoding": "identity"})
        if self._user:
            login = base64.b64encode(self._user.encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {login}")
        if tag:
            request.add_header("Range", f"bytes={have}-")
            request.add_header("If-Range", tag)
        try:
            return self._opener.open(request, timeout=timeout_s)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416:
                raise Changed("the content has changed") from None
            if error.code not in WORTH_RETRYING:
                raise EngineError(f"{self.shown}: the server answers {error.code} {error.reason}") from None
            raise
