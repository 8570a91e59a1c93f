"""HTTP server of one folder, as a process of its own, with faults on demand: it hangs, refuses, crawls, cuts, spoils.

`python -m testbed.file_server FOLDER ADDRESS` listens on a free port and writes it to FOLDER/port. What is to go wrong
is in FOLDER/faults.json, read again at every request, so that anybody who sees the folder can change it while it runs.
Only FOLDER/public is served. Not here: what is in the folder (`apt_repository`).
"""

from __future__ import annotations

import fnmatch
import functools
import http.server
import json
import sys
import time
import urllib.parse
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

BLOCK = 1 << 16
LOOK_AGAIN_S = 0.1  # how soon a request that hangs sees that it may go on
PUBLIC, PORT, FAULTS = "public", "port", "faults.json"


@dataclass(frozen=True)
class Fault:
    """What happens to requests for paths that match."""

    pattern: str = "*"
    hangs: bool = False
    status: int = 0
    bytes_per_s: float = 0
    cut_after: int | None = None
    """So many bytes of the content, then the connection is closed."""
    is_spoiled: bool = False
    """The content has the right size and its first block is something else."""


def write_faults(folder: Path, faults: list[Fault]) -> None:
    scratch = folder / f".{FAULTS}"
    scratch.write_text(json.dumps([asdict(fault) for fault in faults]))
    scratch.rename(folder / FAULTS)


def read_faults(folder: Path) -> list[Fault]:
    try:
        return [Fault(**row) for row in json.loads((folder / FAULTS).read_text())]
    except FileNotFoundError:
        return []


def fault_for(folder: Path, path: str) -> Fault:
    """The last one that matches; one with which nothing is wrong if none does."""
    listed = reversed(read_faults(folder))
    return next((fault for fault in listed if fnmatch.fnmatchcase(path, fault.pattern)), Fault())


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a file unless told otherwise. Requests are in the process's log, one line each."""

    protocol_version = "HTTP/1.1"

    def __init__(self, *arguments: Any, folder: Path, **options: Any) -> None:
        self.folder = folder
        super().__init__(*arguments, directory=str(folder / PUBLIC), **options)

    def look(self) -> Fault:
        return fault_for(self.folder, urllib.parse.unquote(self.path.partition("?")[0]))

    def send_head(self) -> Any:
        while (fault := self.look()).hangs:
            time.sleep(LOOK_AGAIN_S)
        if fault.status:
            self.send_error(fault.status)
            return None
        return super().send_head()

    def list_directory(self, path: Any) -> None:
        self.send_error(404)

    def copyfile(self, source: IO[bytes], outputfile: IO[bytes]) -> None:  # type: ignore[override]
        """Send the content; faults that come or go meanwhile count from the next block on."""
        sent = 0
        try:
            while block := source.read(block_size(fault := self.look())):
                if fault.bytes_per_s:
                    time.sleep(len(block) / fault.bytes_per_s)
                if fault.is_spoiled and not sent:
                    block = bytes(byte ^ 0xFF for byte in block)
                if fault.cut_after is not None and sent + len(block) > fault.cut_after:
                    outputfile.write(block[: max(fault.cut_after - sent, 0)])
                    self.close_connection = True
                    return
                outputfile.write(block)
                sent += len(block)
        except OSError:
            # Nobody waits for the rest any more.
            self.close_connection = True


def block_size(fault: Fault) -> int:
    """What crawls comes in small pieces, several a second."""
    return max(1, min(BLOCK, int(fault.bytes_per_s * LOOK_AGAIN_S))) if fault.bytes_per_s else BLOCK


def main(folder: Path, address: str) -> None:
    server = http.server.ThreadingHTTPServer((address, 0), functools.partial(Handler, folder=folder))
    scratch = folder / f".{PORT}"
    scratch.write_text(str(server.server_port))
    scratch.rename(folder / PORT)
    server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
