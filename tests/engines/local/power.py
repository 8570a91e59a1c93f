"""A power loss, computed from what a program really asked of the kernel: system calls recorded by strace, replayed.

`Disk` knows of every file what was written and what was synced. After any call it can lay out the worst that POSIX
allows a disk to hold then: content that was not synced is gone, and names that were not synced are there (`names=True`,
an empty file under its new name) or not (`names=False`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

CALLS = (
    "open,openat,creat,write,pwrite64,writev,splice,sendfile,copy_file_range,ioctl,truncate,ftruncate,rename,renameat,"
    "renameat2,link,linkat,symlink,symlinkat,mkdir,mkdirat,unlink,unlinkat,rmdir,fsync,fdatasync,mknod,mknodat"
)
COMMAND = ["strace", "-f", "-y", "-xx", "-s", "1048576", "-e", f"trace={CALLS}", "-e", "signal=none"]
_LINE = re.compile(r"(\d+)\s+(\w+)\((.*)\)\s+= (-?\d+)")
_UNFINISHED = re.compile(r"(\d+)\s+(\w+)\((.*) <unfinished \.\.\.>$")
_RESUMED = re.compile(r"(\d+)\s+<\.\.\. (\w+) resumed>(.*)$")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_PLACE = re.compile(r"(-?\d+|AT_FDCWD)<([^>]*)>")


class Call(NamedTuple):
    name: str
    arguments: str

    def texts(self) -> list[bytes]:
        return [bytes.fromhex(text.replace("\\x", "")) for text in _TEXT.findall(self.arguments)]

    def descriptors(self) -> list[str]:
        """The files behind the descriptors among the arguments."""
        return [_plain(place) for _, place in _PLACE.findall(_TEXT.sub('""', self.arguments))]

    def paths(self) -> list[str]:
        """The paths among the arguments, made absolute by the folders before them."""
        bases, found = self.descriptors(), []
        names = [os.fsdecode(name) for name in self.texts()]
        for number, name in enumerate(names):
            base = bases[min(number, len(bases) - 1)] if bases else "/"
            found.append(os.path.normpath(os.path.join(base, name)))
        return found


def _plain(text: str) -> str:
    """A path as strace shows it beside a descriptor: in hexadecimal too."""
    if "\\x" in text:
        text = os.fsdecode(bytes.fromhex(text.replace("\\x", "")))
    return text.removesuffix(" (deleted)")


def read_trace(path: Path) -> list[Call]:
    """The calls that succeeded. Names change when a call begins, contents are there when one has ended.

    strace tells of an end when it gets round to it: by then others may have seen the new name and told of it.
    """
    calls: list[Call | None] = []
    begun: dict[str, tuple[str, int]] = {}
    for line in path.read_text(errors="replace").splitlines():
        if match := _UNFINISHED.match(line):
            begun[match[1]] = (f"{match[1]} {match[2]}({match[3]}", len(calls))
            calls.append(None)
            continue
        position = len(calls)
        if match := _RESUMED.match(line):
            text, first = begun.pop(match[1], ("", position))
            line = text + match[3]
            position = first if match[2].startswith(("rename", "mkdir")) else position
        found = _LINE.match(line)
        if found and int(found[4]) >= 0:
            call = Call(found[2], found[3])
            if position < len(calls):
                calls[position] = call
            else:
                calls.append(call)
    return [call for call in calls if call is not None]


class Node:
    """A file or a folder of the disk."""

    def __init__(self, *, is_folder: bool = False) -> None:
        self.is_folder = is_folder
        self.entries: dict[str, Node] = {}
        self.synced_entries: dict[str, Node] = {}
        self.content = b""
        self.synced: bytes | None = None
        self.link: str | None = None
        self.is_opaque = False  # the kernel moved bytes into it: what they were is known from the live file only


class Disk:
    """The disk below one folder, call by call."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.tree = Node(is_folder=True)

    def _find(self, path: str) -> Node | None:
        node: Node | None = self.tree
        for part in self._parts(path):
            node = node.entries.get(part) if node else None
        return node

    def _parts(self, path: str) -> list[str]:
        inner = os.path.relpath(path, self.root)
        return [] if inner == "." else inner.split("/")

    def is_inside(self, path: str) -> bool:
        return path == self.root or path.startswith(self.root + "/")

    def _put(self, path: str, node: Node | None) -> None:
        folder = self._find(os.path.dirname(path))
        if folder is None:
            return
        if node is None:
            folder.entries.pop(os.path.basename(path), None)
        else:
            folder.entries[os.path.basename(path)] = node

    def apply(self, call: Call) -> bool:
        """Note what the call did; whether it could matter to what is on the disk."""
        if call.name in ("open", "openat", "creat"):
            return self._open(call)
        if call.name in ("write", "pwrite64", "writev", "ftruncate", "fsync", "fdatasync"):
            return self._on_file(call)
        if call.name in ("splice", "sendfile", "copy_file_range", "ioctl"):
            for place in call.descriptors():
                node = self._find(place) if self.is_inside(place) else None
                if node is not None and (call.name != "ioctl" or "FICLONE" in call.arguments):
                    node.is_opaque = True
            return False
        return self._on_names(call)

    def _open(self, call: Call) -> bool:
        path = call.paths()[0]
        if not self.is_inside(path) or "O_CREAT" not in call.arguments and "O_TRUNC" not in call.arguments:
            return False
        node = self._find(path)
        if node is None:
            self._put(path, Node())
        elif "O_TRUNC" in call.arguments:
            node.content = b""
        return False

    def _on_file(self, call: Call) -> bool:
        place = call.descriptors()[0]
        node = self._find(place) if self.is_inside(place) else None
        if node is None:
            return False
        if call.name in ("fsync", "fdatasync"):
            node.synced, node.synced_entries = node.content, dict(node.entries)
            return True
        if call.name == "ftruncate":
            node.is_opaque = True
        else:
            node.content += b"".join(call.texts())
        return False

    def _on_names(self, call: Call) -> bool:
        paths = call.paths()
        if not any(self.is_inside(path) for path in paths[:2]):
            return False
        if call.name.startswith("rename"):
            moved = self._find(paths[0]) if self.is_inside(paths[0]) else None
            self._put(paths[0], None) if self.is_inside(paths[0]) else None
            self._put(paths[1], moved) if self.is_inside(paths[1]) else None
        elif call.name.startswith("mkdir"):
            self._put(paths[0], Node(is_folder=True))
        elif call.name.startswith("symlink"):
            node = Node()
            node.link = os.fsdecode(call.texts()[0])
            self._put(paths[-1], node)
        elif call.name.startswith("link"):
            self._put(paths[1], self._find(paths[0]))
        elif call.name.startswith(("unlink", "rmdir")):
            self._put(paths[0], None)
        return call.name.startswith("rename")

    def lay_out(self, target: Path, live: Mapping[str, bytes], *, names: bool) -> None:
        """Write what the disk holds at worst. `live` has the files as they are, for what the kernel moved itself."""
        self._lay_out(self.tree, target, self.root, live, names=names)

    def _lay_out(self, node: Node, target: Path, path: str, live: Mapping[str, bytes], *, names: bool) -> None:
        target.mkdir(mode=0o700, exist_ok=True)
        for name, child in (node.entries if names else node.synced_entries).items():
            place, own = target / name, f"{path}/{name}"
            if child.is_folder:
                self._lay_out(child, place, own, live, names=names)
            elif child.link is not None:
                place.symlink_to(child.link)
            else:
                synced = child.synced or b""
                place.write_bytes(live.get(own, synced) if child.is_opaque and child.synced is not None else synced)
                place.chmod(0o600)
