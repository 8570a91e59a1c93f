"""Deletion of a volume's folder, whatever pods made in it: links, and folders nested deeper than paths, open files or
calls may be. Nothing outside of it is touched.
"""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def delete_folder(path: Path) -> None:
    """Delete the folder and all in it; one that is gone is no error. Raises OSError, and the next try goes on.

    Folders that are not empty are moved up first: no more than two are open at a time.
    """
    try:
        top = os.open(path, _OPEN)
    except FileNotFoundError:
        return
    try:
        mark = f".deleted-{secrets.token_hex(8)}"  # no pod can know it, and take the name
        count = _empty(top, top, mark, 0)
        taken = 0
        while taken < count:
            inner = os.open(f"{mark}-{taken}", _OPEN, dir_fd=top)
            try:
                count = _empty(inner, top, mark, count)
            finally:
                os.close(inner)
            os.rmdir(f"{mark}-{taken}", dir_fd=top)
            taken += 1
    finally:
        os.close(top)
    os.rmdir(path)


def _empty(folder: int, top: int, mark: str, count: int) -> int:
    """Delete what is in a folder; its folders that are not empty go to the top, under the mark and a number from
    `count` on. Returns the next number.
    """
    with os.scandir(folder) as entries:
        names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in names:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
            continue
        try:
            os.rmdir(name, dir_fd=folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            os.rename(name, f"{mark}-{count}", src_dir_fd=folder, dst_dir_fd=top)
            count += 1
    return count
