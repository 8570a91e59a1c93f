"""Makes the programs that are in no folder yet: once for all checkouts, under a lock, one whole target after the other.

A target appears in the cache by one rename, so a build that was killed left either all of it or nothing, and the next
one goes on from there (Go keeps what it compiled). Not here: which programs there are (`binaries`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from testbed import binaries, releases
from testbed.binaries import Target
from testbed.errors import Missing, TestbedError

LOG_TAIL_LINES = 30
SAY_EVERY_S = 15.0


class Progress:
    """Lines on stderr: what is being made, which part of how many, how long so far."""

    def __init__(self, total: int, *, quiet: bool = False) -> None:
        self.total = total
        self.done = 0
        self.quiet = quiet

    def say(self, text: str) -> None:
        if not self.quiet:
            print(f"testbed build [{self.done}/{self.total}] {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def build_lock(cache: Path, progress: Progress) -> Iterator[None]:
    """One build at a time for a cache. The kernel frees the lock of a killed build."""
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "build.lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.say("another build is running, waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make(targets: Sequence[Target], *, quiet: bool = False) -> None:
    """Afterwards every target is in the cache."""
    cache = binaries.cache_folder()
    progress = Progress(len(targets), quiet=quiet)
    with build_lock(cache, progress):
        remove_abandoned(cache / "binaries")
        for target in targets:
            began = time.monotonic()
            how = make_one(target, cache, progress)
            progress.done += 1
            progress.say(f"{target.name}: {how}, {time.monotonic() - began:.0f} s")


def make_one(target: Target, cache: Path, progress: Progress) -> str:
    """Download or build one target; says which of them it was."""
    wanted = binaries.cached_folder(target, cache)
    if binaries.in_folder(target, wanted):
        return "already there"
    wanted.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".making-", dir=wanted.parent))
    try:
        if releases.fetch(target, scratch, progress.say):
            how = "official release"
        else:
            compile_target(target, scratch, progress)
            how = "built"
        if not binaries.in_folder(target, scratch):
            raise TestbedError(f"{target.name}: not every program came out of it: {', '.join(target.programs)}")
        scratch.chmod(0o755)
        shutil.rmtree(wanted, ignore_errors=True)
        scratch.rename(wanted)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return how


def remove_abandoned(folder: Path) -> None:
    """What a killed build left half done. Called under the lock, so nobody is at work in them."""
    for left in folder.glob(".making-*"):
        shutil.rmtree(left, ignore_errors=True)


def go_program() -> str | None:
    return shutil.which("go") or ("/usr/local/go/bin/go" if os.access("/usr/local/go/bin/go", os.X_OK) else None)


def check_tools(target: Target) -> str:
    """The Go command; refuses with the names of what is missing."""
    go = go_program()
    if go is None:
        raise Missing(f"{target.name} must be built and there is no Go: install Go 1.21 or newer")
    if target.cgo:
        if not shutil.which("gcc") or not shutil.which("pkg-config"):
            raise Missing(f"{target.name} must be built with a C compiler: install gcc, libc6-dev and pkg-config")
        if (
            "seccomp" in target.tags
            and subprocess.run(["pkg-config", "--exists", "libseccomp"], check=False).returncode
        ):
            raise Missing(f"{target.name} must be built with libseccomp: install libseccomp-dev")
    return go


def go_command(target: Target, go: str, package: str, output: Path) -> list[str]:
    flags = "-s -w" + (f" {target.stamps}" if target.stamps else "")
    if target.cgo:
        # NVIDIA's programs open the driver's library when they run: its functions are looked for at the first call.
        flags += " -extldflags -static" if target.is_static else " -extldflags=-Wl,-z,lazy"
    command = [go, "build", "-v", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", flags]
    command += ["-p", os.environ.get("LONGBOAT_TESTBED_JOBS") or str(os.cpu_count() or 1)]
    if target.tags:
        command += ["-tags", target.tags]
    return [*command, "-o", str(output), package]


def compile_target(target: Target, folder: Path, progress: Progress) -> None:
    go = check_tools(target)
    environment = {**os.environ, "CGO_ENABLED": "1" if target.cgo else "0", "GOWORK": "off", "GOFLAGS": ""}
    module = binaries.GO_FOLDER / target.module
    for file, package in target.packages.items():
        run_go(go_command(target, go, package, folder / file), module, environment, progress)
    for link in target.links:
        (folder / link).symlink_to(next(iter(target.packages)))


def run_go(command: list[str], module: Path, environment: dict[str, str], progress: Progress) -> None:
    """Run a build at the lowest priority: tests and people on the same machine go first."""
    polite = [part for words in (("nice", "-n19"), ("ionice", "-c3")) if shutil.which(words[0]) for part in words]
    name = Path(command[-2]).name
    child = subprocess.Popen(
        [*polite, *command], cwd=module, env=environment, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stderr is not None
    lines: list[str] = []
    reader = threading.Thread(target=collect, args=(child.stderr, lines), daemon=True)
    reader.start()
    began = said = time.monotonic()
    try:
        while child.poll() is None:
            time.sleep(0.2)
            if time.monotonic() - said >= SAY_EVERY_S:
                said = time.monotonic()
                progress.say(f"{name}: {said - began:.0f} s, {len(lines)} packages compiled")
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()
        reader.join(timeout=5)
    if child.returncode != 0:
        tail = "\n".join(lines[-LOG_TAIL_LINES:])
        raise TestbedError(f"{name}: go build failed with exit code {child.returncode}\n{tail}")


def collect(stream: IO[str], lines: list[str]) -> None:
    for line in stream:
        lines.append(line.rstrip("\n"))
