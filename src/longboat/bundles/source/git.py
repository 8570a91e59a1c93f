"""What git says of a tree: what belongs to it, at which commit it is, what is not committed. Reads only; runs no hook
and no program that the repository names, changes no index."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence

from longboat.bundles.source import secret_files
from longboat.core.errors import BundleError
from longboat.core.jobs import Value

MAX_DIFF_BYTES = 1 << 20
"""The changes are kept to be read by people."""
_TIMEOUT_S = 120.0  # a status of a huge repository on a slow disk; a hung one must not hang the run
_MOST_FILTERS = 100  # a command line has an end; repositories have one or two
_SAFE = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", "-c", "core.quotePath=false", "--no-pager")
_KEPT = ("GIT_CONFIG_", "GIT_CEILING_DIRECTORIES", "GIT_DISCOVERY_ACROSS_FILESYSTEM", "GIT_EXEC_PATH")


class GitFiles(Value, frozen=True):
    """What git answers about a folder. A tracked path may be a submodule's folder, or gone."""

    tracked: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()
    repositories: tuple[str, ...] = ()  # untracked folders that are repositories of their own
    warnings: tuple[str, ...] = ()


class GitFailed(Exception):
    """Git is missing or cannot read this repository; the text says why."""


def in_repository(root: str) -> bool:
    """Whether this folder or one above holds a `.git`; cheap, so that git is not started in vain."""
    folder = os.path.realpath(root)
    while True:
        if os.path.lexists(f"{folder}/.git"):
            return True
        above = os.path.dirname(folder)
        if above == folder:
            return False
        folder = above


def listing(root: str) -> GitFiles:
    """Tracked files plus untracked ones that are not ignored, relative to `root`, which may be a folder inside the
    repository. Raises GitFailed."""
    code, data, complaints = _run(root, ("ls-files", "-z", "-t", "--cached", "--others", "--exclude-standard"))
    if code:
        raise GitFailed(_in_a_line(complaints) or f"git ended with {code}")
    lines = _decode(data)
    if not lines and _run(root, ("check-ignore", "-q", "."))[0] == 0:
        raise GitFailed("")  # the whole folder is ignored by a repository above it: that one has nothing to say here
    # Each line is a letter, a blank and the path; an unmerged path comes several times.
    others = [line[2:] for line in lines if line.startswith("? ")]
    return GitFiles(
        tracked=tuple(dict.fromkeys(line[2:] for line in lines if not line.startswith("? "))),
        untracked=tuple(name for name in others if not name.endswith("/")),
        repositories=tuple(name.rstrip("/") for name in others if name.endswith("/")),
        warnings=tuple(f"git: {line}" for line in complaints.splitlines()[:5]),
    )


def ignored_by(root: str, paths: Sequence[str]) -> tuple[str, str] | None:
    """The first of these paths that git ignores, and the line of an ignore file that says so (`.gitignore:3: data/`).

    A file that is tracked is not ignored. None where git has nothing to say.
    """
    try:
        code, answer, _ = _run(root, ("check-ignore", "-v", "-z", "--stdin"), b"\0".join(map(os.fsencode, paths)))
        fields = _decode(answer) if code == 0 else []
    except (GitFailed, BundleError):
        return None
    if len(fields) < 4:
        return None
    source, line, pattern, path = fields[:4]
    return path, f"{source}:{line}: {pattern}"


def _decode(data: bytes) -> list[str]:
    try:
        return list(filter(None, data.decode().split("\0")))
    except UnicodeDecodeError:
        for name in data.split(b"\0"):
            try:
                name.decode()
            except UnicodeDecodeError:
                raise not_utf8(name) from None
        raise


def not_utf8(name: bytes) -> BundleError:
    shown = name.decode(errors="backslashreplace")
    return BundleError(
        f"{shown}: the name of this file is not UTF-8, so it cannot be the same on every machine",
        hint="rename it, or leave it out: git ignores it, or a folder above it is in .longboatignore",
    )


def head(root: str) -> str | None:
    """The commit, None before the first one."""
    code, data, _ = _run(root, ("rev-parse", "--verify", "--quiet", "HEAD"))
    text = data.decode(errors="replace").strip()
    return text if code == 0 and re.fullmatch(r"[0-9a-f]{40,64}", text) else None


def diff(root: str, travels: Callable[[str], bool]) -> bytes:
    """The uncommitted changes of tracked files below `root`, as a patch; bounded, without files that do not travel and
    without what looks like a secret."""
    options = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--src-prefix=a/", "--dst-prefix=b/")
    shallow = ("--ignore-submodules=dirty", "--submodule=short")  # else git is started in each, by its own settings
    arguments = (*_without_filters(root), "diff", *options, *shallow, "--relative", "HEAD", "--", ".")
    data = _first_bytes(root, arguments, MAX_DIFF_BYTES)
    kept = b"".join(_kept_section(section, travels) for section in _sections(data))
    if len(data) >= MAX_DIFF_BYTES:
        kept = kept[: kept.rfind(b"\n") + 1] + b"# the rest is left out: the changes are larger than 1 MiB\n"
    return kept


def _without_filters(root: str) -> tuple[str, ...]:
    """Settings that switch off every `filter.NAME` of the configuration: git runs their programs to compare files.

    Files that a filter keeps in another form (git-lfs) then differ as soon as they are touched. Raises GitFailed.
    """
    code, data, complaints = _run(root, ("config", "--list", "--name-only", "-z"))
    if code:
        raise GitFailed(_in_a_line(complaints) or f"git config ended with {code}")
    names = {name for name in _decode(data) if name.startswith("filter.") and name.count(".") > 1}
    drivers = sorted({name.rpartition(".")[0] for name in names})
    if len(drivers) > _MOST_FILTERS or any("=" in driver for driver in drivers):
        raise GitFailed("the repository has filters that cannot be switched off")  # -c ends a name at the first =
    off = ("clean=", "process=", "smudge=", "required=false")
    return tuple(word for driver in drivers for value in off for word in ("-c", f"{driver}.{value}"))


def _sections(data: bytes) -> list[bytes]:
    # Lines of content start with a blank, +, - or \, so this line start is always a header.
    return [b"diff --git " + part for part in re.split(rb"(?m)^diff --git ", data)[1:]]


def _kept_section(section: bytes, travels: Callable[[str], bool]) -> bytes:
    path = _section_path(section.partition(b"\n")[0])
    if (
        path is not None
        and travels(path)
        and not secret_files.named_like_one(path)
        and not secret_files.token_in(section)
    ):
        return section
    return f"# left out: {path or 'a file'}\n".encode()


def _section_path(header: bytes) -> str | None:
    """`diff --git a/X b/X`: without renames both halves name the same path."""
    text = header.decode(errors="replace").removeprefix("diff --git ")
    half = text[: len(text) // 2]
    if half.startswith('"'):
        half = _unquoted(half[1:-1])
    return half[2:] if half.startswith("a/") else None


def _unquoted(text: str) -> str:
    simple = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

    def plain(match: re.Match[str]) -> str:
        code = match.group(1)
        return chr(int(code, 8)) if code.isdecimal() else simple.get(code, code)

    return re.sub(r"\\([0-7]{3}|.)", plain, text)


def _in_a_line(complaints: str) -> str:
    """What git complains about, and of a repository that belongs to somebody else the command that trusts it."""
    first, *others = complaints.strip().splitlines() or [""]
    trust = next((line.strip() for line in others if "safe.directory" in line), "")
    return f"{first}; {trust} trusts it" if trust else first


def _run(root: str, arguments: tuple[str, ...], data: bytes = b"") -> tuple[int, bytes, str]:
    """Exit code, output, and what git complained about."""
    import subprocess  # not at the start: only a tree under git needs it

    try:
        result = subprocess.run(
            _command(root, arguments),
            input=data,
            capture_output=True,
            env=_environment(os.environ),
            timeout=_TIMEOUT_S,
        )
    except OSError as error:
        raise GitFailed(f"git cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise GitFailed(f"git {arguments[0]} took longer than {_TIMEOUT_S:.0f} s") from None
    return result.returncode, result.stdout, result.stderr[:10_000].decode(errors="replace")


def _first_bytes(root: str, arguments: tuple[str, ...], most: int) -> bytes:
    """At most that many bytes of the output; git is ended when there are more, or when it takes too long."""
    import subprocess
    import threading

    with subprocess.Popen(
        _command(root, arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=_environment(os.environ),
    ) as process:
        assert process.stdout is not None
        patience = threading.Timer(_TIMEOUT_S, process.kill)
        patience.start()
        try:
            return process.stdout.read(most)
        finally:
            patience.cancel()
            process.kill()


def _command(root: str, arguments: tuple[str, ...]) -> list[str]:
    return ["git", *_SAFE, "-C", root, *arguments]


def _environment(outer: Mapping[str, str]) -> dict[str, str]:
    """Without what a git hook or a user's script may have set: the question is about this folder, not about theirs."""
    inner = {name: value for name, value in outer.items() if not name.startswith("GIT_") or name.startswith(_KEPT)}
    # Objects that a partial clone lacks are not fetched: the address is the repository's, and may name a program.
    offline = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
    return {**inner, **offline, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
