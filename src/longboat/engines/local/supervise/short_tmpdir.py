"""TMPDIR of a node: a short symbolic link to its scratch folder, which lies deep in the run's folder.

The path of a Unix socket has at most 107 bytes. `multiprocessing` and data loaders put their sockets below TMPDIR, and
fail or hang where that is long. The files themselves stay in the run's folder, where they are counted and removed.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from longboat.core.guards.digests import sha256_of

SHORT = 48
"""Bytes that are short enough: names below TMPDIR have 59 left, and multiprocessing's have 32."""


def short_path(scratch: Path, home: Path, *, tidies: bool = True) -> Path:
    """Short link to the folder; the folder itself where no private link can be made.

    `tidies`: links of runs that are gone are removed on the way, which takes as long as there are links.
    """
    if len(os.fsencode(scratch)) <= SHORT:
        return scratch
    for link in _links_of(scratch, home):
        if len(os.fsencode(link)) <= SHORT and _made(link, scratch, tidies):
            return link
    return scratch


def forget(scratch: Path, home: Path) -> None:
    """Remove the link, if there is one."""
    if len(os.fsencode(scratch)) <= SHORT:
        return
    for link in _links_of(scratch, home):
        with contextlib.suppress(OSError):
            if os.readlink(link) == str(scratch):
                link.unlink()
                with contextlib.suppress(OSError):  # others are left
                    link.parent.rmdir()
                return


def _links_of(scratch: Path, home: Path) -> Iterator[Path]:
    """In Longboat's home, or, where that is long, in the machine's temporary folder: that one is tidied up by some
    systems after days."""
    name = sha256_of(os.fsencode(scratch))[:10]
    yield home / "t" / name
    import tempfile  # not at the start: most homes are short

    yield Path(tempfile.gettempdir()) / f"longboat-{os.getuid()}" / name


def _made(link: Path, scratch: Path, tidies: bool) -> bool:
    for _ in range(3):  # the folder may be removed in between by a run that ends
        try:
            _make_private(link.parent)
            if tidies:
                _remove_dangling(link.parent)
            with contextlib.suppress(FileExistsError):  # of this very folder, from a supervisor that died
                link.symlink_to(scratch)
            return os.readlink(link) == str(scratch)
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return False


def _make_private(folder: Path) -> None:
    """Others can write to the temporary folder: what they put there under our name is not used."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder of this user alone")


def _remove_dangling(folder: Path) -> None:
    """Links of runs that were removed while nobody looked."""
    for link in folder.iterdir():
        if link.is_symlink() and not link.exists():
            link.unlink(missing_ok=True)
