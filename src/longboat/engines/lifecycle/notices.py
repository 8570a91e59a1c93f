"""Notices of the end of a run: a webhook, a message for Slack and alike, a command. Set by `notify` in config.yaml.

What is told is the run's name, how it ended, its step and metrics; neither its command nor its environment. The
addresses, which are secrets often, are read from the settings when a notice is sent and written nowhere else.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import Any

import msgspec

from longboat.core.errors import LongboatError
from longboat.core.guards.decoding import convert, decode
from longboat.core.jobs import Value
from longboat.core.runs import FINAL_PHASES, RunStatus
from longboat.core.times import format_time, show_age
from longboat.engines.shared.files import log_line
from longboat.engines.shared.home import Home

TRIES, PAUSE_S = 3, 2.0
"""A server that restarts answers again within seconds; nobody waits for a notice longer."""
SEND_S, COMMAND_S = 10.0, 60.0  # for one answer of a server; for a command of the user's, which may send mail
MOST_REASON = 500  # of a message for a chat; `longboat explain` has the rest
PATIENCE_S = 3.0
"""So long a command waits to say that a notice was not sent; then the notice is left to a process of its own."""
KEPT = "noticed"
"""Folder of the home with a file for each run of a cluster whose end was told: by whoever saw it first, and once."""
JUST_S = 600.0
"""Who looks at a run that ended earlier is told of its end by looking."""


class NoticeSettings(Value, frozen=True):
    webhook: str | None = None  # gets the notice as JSON
    slack: str | None = None  # gets `{"text": ...}`, as Slack, Mattermost and others take it
    command: str | None = None  # for the shell; the notice is its input, and LONGBOAT_NOTICE_* of its environment
    on: tuple[str, ...] = FINAL_PHASES


def read_notice_settings(home: Home) -> NoticeSettings:
    """What is set; nothing where the file is missing or damaged, which other commands tell."""
    path = home.root / "config.yaml"
    try:
        data = path.read_bytes()
    except OSError:
        return NoticeSettings()
    from longboat.specs.yaml.yaml12 import parse_bytes
    from longboat.specs.yaml.yaml_tree import Mistakes, plain

    try:
        node = parse_bytes(data, file=str(path), mistakes=Mistakes())
        values = plain(node) if node is not None else {}
        chosen = values.get("notify") if isinstance(values, dict) else None
        return convert(chosen or {}, NoticeSettings)
    except (msgspec.ValidationError, LongboatError):
        return NoticeSettings()


def notice_of(run: RunStatus) -> dict[str, Any]:
    """The notice of a run that has ended, as plain data. Pure."""
    lasted = run.ended - run.started if run.ended and run.started else None
    return {
        "run": run.name,
        "phase": run.phase,
        "exit_code": run.exit_code,
        "cause": run.cause,
        "reason": run.reason[:MOST_REASON],
        "user": run.user,
        "engine": run.engine,
        "ended": format_time(run.ended) if run.ended else None,
        "seconds": round(lasted, 1) if lasted is not None else None,
        "attempts": run.attempt + 1,
        "step": run.step,
        "metrics": _finite(run.metrics),
        "text": _sentence(run, lasted),
    }


def _sentence(run: RunStatus, lasted: float | None) -> str:
    """`train failed after 3m20s with exit code 1: ...`, on one line."""
    words = [f"{run.name} {run.phase if run.phase != 'stopped' else 'was stopped'}"]
    if lasted is not None:
        words.append(f"after {show_age(lasted)}")
    if run.exit_code:
        words.append(f"with exit code {run.exit_code}")
    text = " ".join(words) + (f": {run.reason[:MOST_REASON]}" if run.reason else "")
    numbers = ", ".join(f"{name} {value:g}" for name, value in list(run.metrics.items())[:6])
    text += f" (step {run.step}{', ' + numbers if numbers else ''})" if run.step is not None else ""
    return " ".join(text.split())


def is_wanted(settings: NoticeSettings, run: RunStatus) -> bool:
    return bool(settings.webhook or settings.slack or settings.command) and run.phase in settings.on


def send(settings: NoticeSettings, run: RunStatus, say: Callable[[str], None]) -> None:
    """Send the notices of an ended run. What cannot be sent is told by `say`, without the address."""
    notice = notice_of(run)
    for name, url, body in (
        ("webhook", settings.webhook, notice),
        # A reason may be any text of the trainer: none of it is a link, or calls a channel.
        ("slack", settings.slack, {"text": escape(notice["text"], quote=False)}),
    ):
        if url and (problem := _post(url, msgspec.json.encode(body))):
            say(f"the notice of {run.name} was not sent (notify.{name}): {problem}")
    if settings.command and (problem := _run(settings.command, notice)):
        say(f"the notice of {run.name} was not given (notify.command): {problem}")


def send_detached(home: Home, run: RunStatus) -> None:
    """Send the notices in a process of their own: nobody waits for a server that does not answer."""
    if is_wanted(read_notice_settings(home), run):
        _sender(home, run, stderr=None)


def _sender(home: Home, run: RunStatus, *, stderr: int | None) -> subprocess.Popen[bytes]:
    """The process, which has been told of the run."""
    package = str(Path(__file__).parents[3])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    child = subprocess.Popen(
        [sys.executable, "-m", "longboat.engines.lifecycle.notices", str(home.root)],
        stdin=subprocess.PIPE,
        stdout=None if stderr is None else subprocess.DEVNULL,  # nobody waits for the end of a pipe that it holds open
        stderr=stderr,
        cwd="/",
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )
    with child.stdin as pipe:  # type: ignore[union-attr]
        pipe.write(msgspec.json.encode(_needed(run)))
    child.stdin = None
    return child


def _needed(run: RunStatus) -> RunStatus:
    """What a notice is made of. JSON has no word for a loss that is no number."""
    return msgspec.structs.replace(run, spec=None, ranks=(), attempts=(), metrics=_finite(run.metrics))


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if value - value == 0}


def notify_once(home: Home, run: RunStatus, now: float, say: Callable[[str], None]) -> None:
    """Send the notices of a run that has just ended, unless another command of this home has seen its end before."""
    settings = read_notice_settings(home)
    if not is_wanted(settings, run) or now - (run.ended or 0.0) > JUST_S:
        return
    try:
        os.close(os.open(home.folder(KEPT) / _file_name(run.uid), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return
    except (OSError, LongboatError):
        pass  # a full disk: rather twice than never
    child = _sender(home, run, stderr=subprocess.PIPE)
    try:
        _, said = child.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        return  # it goes on by itself
    for line in said.decode("utf-8", "replace").splitlines():
        say(line)


def forget_notice(home: Home, uid: str) -> None:
    """After the run was removed."""
    (home.root / KEPT / _file_name(uid)).unlink(missing_ok=True)


def _file_name(uid: str) -> str:
    """The uid in a record of a cluster is anybody's word."""
    return hashlib.sha256(uid.encode("utf-8", "replace")).hexdigest()[:40]


def _post(url: str, body: bytes) -> str:
    """Send a body; why it was not taken, without the address, or empty."""
    import http.client
    import urllib.error

    from longboat.engines.lifecycle.webhook import post

    problem = ""
    for left in reversed(range(TRIES)):
        try:
            post(url, body, SEND_S)
            return ""
        except urllib.error.HTTPError as error:
            leads = ", which leads elsewhere: name that address" if 300 <= error.code < 400 else ""
            problem = f"HTTP status {error.code}{leads}"
            if error.code < 500 and error.code != 429:
                return problem  # it would not take it later either
        except (OSError, ValueError, http.client.HTTPException) as error:
            problem = type(error).__name__
        if left:
            time.sleep(PAUSE_S)
    return problem


def _run(command: str, notice: Mapping[str, Any]) -> str:
    """Run the command with the notice as its input; why it failed, or empty."""
    variables = {
        f"LONGBOAT_NOTICE_{name.upper()}": str(value).replace("\0", "")
        for name, value in notice.items()
        if isinstance(value, (str, int, float))
    }
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            input=msgspec.json.encode(notice),
            env={**os.environ, **variables},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=COMMAND_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it did not end within {COMMAND_S:.0f} s"
    except (OSError, ValueError) as error:
        return type(error).__name__
    return f"exit code {done.returncode}" if done.returncode else ""


def main(root: str) -> None:
    """The process of `send_detached`: the run comes on its input."""
    run = decode(sys.stdin.buffer.read(), RunStatus)
    send(read_notice_settings(Home(Path(root))), run, log_line)


if __name__ == "__main__":
    main(sys.argv[1])
