"""Images on this machine: used if they are there, else pulled once, with progress; failures in one sentence."""

from __future__ import annotations

import os
import re
import select
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import IO

from longboat.core.words import counted
from longboat.engines.local.containers.program import answer, last_line, program_path
from longboat.engines.shared.containers.image_errors import is_without_python, last_part, pull_error, registry_of
from longboat.engines.shared.retry_policy import InputFailed

REPORT_S = 2.0
"""How often the progress of a pull is told: as often as a supervisor looks around."""
KEPT = 1 << 16
"""Bytes of the program's words that are kept: enough for the reason, which comes last."""

_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{64})\b")
_LAYER = re.compile(r"^(?:Copying blob (?:sha256:)?([0-9a-f]{6,})|([0-9a-f]{12}): )", re.MULTILINE)
_DONE = re.compile(r"^([0-9a-f]{12}): (?:Pull complete|Already exists)", re.MULTILINE)


class ImageFailed(InputFailed):
    """The image cannot be had."""

    cause = "image"


def full_name(image: str) -> str:
    """The name as clusters read it: without a registry it means Docker Hub. podman alone would ask, or refuse."""
    if registry_of(image) != "docker.io" or image.startswith("docker.io/"):
        return image
    return f"docker.io/{image}" if "/" in image else f"docker.io/library/{image}"


def progress(text: str) -> str:
    """Progress of a pull, from what the program has printed."""
    layers = {first or second for first, second in _LAYER.findall(text)}
    done = set(_DONE.findall(text))
    if not layers:
        return ""
    return f"{len(done)} of {len(layers)} layers" if done else counted(len(layers), "layer")


class Images:
    """The images that one program has. `report` is told what is being waited for; `check` raises to give up."""

    def __init__(self, program: str, report: Callable[[str], None], check: Callable[[], None]) -> None:
        self._program = program
        self._report = report
        self._check = check
        self.ids: dict[str, str] = {}  # by the name here: its digest where a registry gave it one, else its id

    def provide(self, image: str) -> str:
        """The name under which this machine has the image, pulled if it must be. Raises ImageFailed."""
        for name in dict.fromkeys((image, full_name(image))):
            if self._is_here(name):
                return name
        self._pull(full_name(image))
        self._report("")
        self._is_here(full_name(image))
        return full_name(image)

    def _is_here(self, image: str) -> bool:
        wanted = "{{.Id}}{{range .RepoDigests}} {{.}}{{end}}"
        looked = answer(self._program, ["image", "inspect", "--format", wanted, image], os.environ)
        digests = _DIGEST.findall(looked.stdout)
        self.ids[image] = f"sha256:{digests[-1]}" if digests and not looked.returncode else ""
        text = looked.stderr.lower()
        if looked.returncode and not any(word in text for word in ("no such", "not known", "not found")):
            raise ImageFailed(f"{self._program} does not work here: {last_line(looked.stderr)}")
        return looked.returncode == 0

    def _pull(self, image: str) -> None:
        self._report(f"pulls image {image}")
        with subprocess.Popen(
            [program_path(self._program, os.environ), "pull", image],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as pulling:
            try:
                assert pulling.stdout is not None
                text = self._follow(image, pulling.stdout)
            except BaseException:
                pulling.kill()
                raise
        if pulling.returncode:
            raise ImageFailed(pull_message(image, text))

    def _follow(self, image: str, stream: IO[bytes]) -> str:
        """Read until the end; the last part of it is returned."""
        began = reported = time.monotonic()
        data = b""
        while True:
            self._check()
            ready, _, _ = select.select([stream], [], [], REPORT_S)
            if ready:
                part = os.read(stream.fileno(), KEPT)
                if not part:
                    return data.decode(errors="replace")
                data = (data + part)[-KEPT:]
            now = time.monotonic()
            if now - reported >= REPORT_S:
                reported = now
                words = [part for part in (f"{now - began:.0f} s", progress(data.decode(errors="replace"))) if part]
                self._report(f"pulls image {image} ({', '.join(words)})")


def pull_message(image: str, text: str) -> str:
    """Why it could not be pulled, for the user. Pure."""
    detail = last_part(last_line(text))
    reason = {
        "platform": "it does not exist for this machine's processor",
        "disk": "the disk is full",
        "busy": f"the registry {registry_of(image)} has had too many requests and refuses for now; log in there",
        "certificate": f"the certificate of the registry {registry_of(image)} is not trusted ({detail})",
        "server": f"the registry {registry_of(image)} has an error of its own ({detail})",
        "unauthorised": f"{registry_of(image)} has no such image, or you have to log in there to read it",
        "missing": "the registry has no image of this name and tag",
        "unreachable": f"the registry {registry_of(image)} cannot be reached ({detail})",
    }.get(pull_error(text), f"it could not be pulled ({detail})")
    return f"image {image}: {reason}"


def start_message(image: str, exit_code: int, lines: Sequence[str]) -> str:
    """Why a container never started its launcher, from the last lines of the program's words. Pure."""
    text = "\n".join(lines)
    needs = "the launcher needs Python 3.8 or newer"
    if is_without_python(text):
        return f"image {image} has no python3: {needs}"
    if "SyntaxError" in text:
        return f"the python3 of image {image} is too old: {needs}"
    if pull_error(text) == "platform":
        return f"image {image} is made for another processor than this machine's"
    return f"the container could not be started ({last_line(text) if text else f'exit code {exit_code}'})"
