"""Small files that a cluster file names: keys, manifests, the list of a bundle. Here, or behind a URL."""

from __future__ import annotations

import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import IO, Any

from longboat.core.errors import EngineError

_FILE_BYTES = 8 << 20  # keys have some KiB, manifests of networks up to a MiB


class SafeRedirects(urllib.request.HTTPRedirectHandler):
    """What was asked for over https comes over https all the way."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if urllib.parse.urlsplit(newurl).scheme not in ("https", req.type):
            raise urllib.error.URLError("the server leads away from https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def load_file(name: str) -> bytes:
    """A file here, or what a URL gives: keys and manifests. What comes over https comes so all the way."""
    try:
        if name.startswith(("https://", "http://")):
            # A few kilobytes: a server that is silent for so long is not there.
            with urllib.request.build_opener(SafeRedirects).open(name, timeout=30) as answer:
                content = bytes(answer.read(_FILE_BYTES + 1))
        else:
            with open(Path(name).expanduser(), "rb") as file:
                content = file.read(_FILE_BYTES + 1)
        if len(content) > _FILE_BYTES:
            raise ValueError(f"it is larger than {_FILE_BYTES >> 20} MiB")
        return content
    except (OSError, ValueError) as error:
        hint = "the cluster file may name another place, or a file here"
        raise EngineError(f"{name} cannot be read: {getattr(error, 'reason', None) or error}", hint=hint) from None
