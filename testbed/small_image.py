"""The image `small`: Python and a shell, cut out of the image `python`, so that it fits into an archive.

Enough for the launcher and for scripts of the standard library. Unlike `host`, which shows the machine's own folders,
it has files of its own: what a device plugin gives a pod can be seen in it.
"""

from __future__ import annotations

import posixpath
import re
import tarfile
from pathlib import Path

from testbed import images
from testbed.binaries import Binaries

NAME = "small"
BASE = "python"
_FILES = {"etc/group", "etc/passwd", "etc/nsswitch.conf", "etc/ld.so.conf"}
_PROGRAMS = set("cat chmod cp dash env id ln ls mkdir mknod mv python python3 rm sh sleep tar test true uname".split())
_PROGRAM_OF_PYTHON = re.compile(r"python3\.\d+")
_LIBRARY = re.compile(
    r"(ld-linux.*|lib(acl|attr|bz2|c|cap|dl|expat|ffi|lzma|m|pcre2-8|pthread|rt|selinux|util|uuid|z)\.so.*)"
)
_LIBRARY_FOLDER = re.compile(r"usr/(lib/[^/]*-linux-gnu|lib64)")
_UNUSED_MODULES = re.compile(
    r"__pycache__|config-3.*|distutils|ensurepip|idlelib|lib2to3|pydoc_data|sqlite3|tkinter|unittest|venv|wsgiref|xmlrpc"
)


def is_kept(path: str) -> bool:
    """Whether a file of the large image, given from its root without a slash, is in the small one. Pure."""
    folder, name = posixpath.split(path)
    if folder == "usr/bin":
        return name in _PROGRAMS or _PROGRAM_OF_PYTHON.fullmatch(name) is not None
    if _LIBRARY_FOLDER.fullmatch(folder):
        return _LIBRARY.fullmatch(name) is not None
    parts = path.split("/")
    if parts[:2] == ["usr", "lib"] and len(parts) > 3 and _PROGRAM_OF_PYTHON.fullmatch(parts[2]):
        return not any(_UNUSED_MODULES.fullmatch(part) for part in parts[3:-1])
    return path in _FILES or path.startswith("etc/ld.so.conf.d/")


def fill_layer(layer: Path, programs: Binaries) -> None:
    """Write the one layer of the small image; the large one is made if it is not in the cache yet."""
    with tarfile.open(images.archive(BASE, programs)) as image:
        whole = max(image.getmembers(), key=lambda member: member.size)
        with tarfile.open(fileobj=image.extractfile(whole)) as source, tarfile.open(layer, "w") as small:
            for member in source:
                path = posixpath.normpath(member.name).lstrip("/")
                is_frame = "/" not in path and (
                    member.isdir() or member.issym()
                )  # folders of the root, /bin -> usr/bin
                if is_frame or (not member.isdir() and is_kept(path)):
                    small.addfile(member, source.extractfile(member) if member.isfile() else None)
