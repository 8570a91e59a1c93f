"""Preparation of a pod's node: code, volumes, folders, a home, a `python`, data. Failures are its outcome."""

from __future__ import annotations

import os

from ..node.jsonfiles import write_whole
from ..ranks.state import LauncherState, NodeFailure
from ..vendored import load
from . import checkpoints
from .rank_stdin import open_stdin
from .replica.ready import RESUMED
from .workcopy import CodeError, lay_out

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EXIT_SETUP = 209
FETCHED = "packs"


class PrepareError(Exception):
    """The pod cannot be prepared; the message is for the user."""


def make_ready(state: LauncherState, gang: dict[str, Any], root: str) -> None:
    """Prepare the pod up to setup; after a restart in place only what an attempt has of its own. A failure is in
    `state.failure`."""
    try:
        if state.plan.again is not None:
            settle_in(state)
            _choose_checkpoint(state)
            return
        if state.plan.stdin:
            open_stdin(state)
        _make_folders(state)
        code = gang.get("code")
        if code:
            packs = _packs(state, code, root)
            if state.is_over:
                return
            lay_out(code["entries"], packs, state.plan.workdir)
            drop_fetched(state)
        links = {target: _source(link) for target, link in (gang.get("links") or {}).items()}
        _check_sources(links, root)
        settle_in(state)
        items = _data_items(state, gang.get("data") or [], links)
        if items and not import_data(state, items):
            return
        for target, (source, _) in links.items():
            link(state.plan.workdir, target, source)
        _choose_checkpoint(state)
    except (CodeError, PrepareError) as error:
        state.failure = NodeFailure("setup", EXIT_SETUP, str(error))
    except OSError as error:
        message = "%s: %s" % (error.filename or state.plan.directory, error.strerror or error)
        state.failure = NodeFailure("setup", EXIT_SETUP, message)


def _choose_checkpoint(state: LauncherState) -> None:
    """What to resume from: there on every node, chosen by node 0. Raises PrepareError, OSError."""
    plan = state.plan
    if _fetch_checkpoints(state) and plan.node_rank == 0:
        _begin_attempt(state)
        plan.resume_from = resume_from(plan.checkpoint_dir, plan.resume_from, plan.resume_url)
        write_whole(os.path.join(plan.directory, RESUMED), (plan.resume_from or "").encode())


def _begin_attempt(state: LauncherState) -> None:
    """Fence off earlier attempts, on node 0 before it chooses the checkpoint; not needed in a node's own folder."""
    plan = state.plan
    if not plan.checkpoint_dir or plan.checkpoint_dir.startswith(plan.directory + "/"):
        return
    try:
        checkpoints.begin(plan.checkpoint_dir, plan.attempt, plan.uid)
    except Exception as error:
        if type(error).__name__ == "Fenced":
            raise PrepareError(str(error)) from None
        state.say("attempts before this one are not fenced off: %s" % error)  # a storage that is only read, perhaps


def _fetch_checkpoints(state: LauncherState) -> bool:
    """Download checkpoints from an object store. False: it failed, or the node must end."""
    if not state.plan.checkpoint_store and "://" not in (state.plan.resume_from or ""):
        return True
    from .checkpoint_upload import fetch_before

    return fetch_before(state)


def _packs(state: LauncherState, code: dict[str, Any], root: str) -> list[str]:
    """Paths of the code packs: mounted, or downloaded from an object store."""
    if not code.get("objects"):
        return [os.path.join(root, "code", str(number)) for number in range(int(code["packs"]))]
    from .fetch import fetch_code

    folder = os.path.join(state.plan.directory, FETCHED)
    message = fetch_code(state, code, folder, os.path.join(root, "store"))
    if message is not None and not state.is_over:
        raise PrepareError(message)
    return [os.path.join(folder, str(number)) for number in range(len(code["objects"]))]


def drop_fetched(state: LauncherState) -> None:
    """Remove downloaded packs once they are unpacked."""
    folder = os.path.join(state.plan.directory, FETCHED)
    if os.path.isdir(folder):
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)


def resume_from(own: str | None, wanted: str | None, url: str | None = None) -> str | None:
    """The newest complete checkpoint of this run, else the job's `resume`. Node 0 chooses for all."""
    try:
        newest = checkpoints.find_newest(own)
        if newest is not None or wanted is None:
            return newest
        newest = checkpoints.checkpoint_at(wanted)
    except Exception as error:  # never from the first step on, only because a storage did not answer
        raise PrepareError("the checkpoints cannot be read: %s" % error) from None
    if newest is None:
        raise PrepareError("no complete checkpoint to resume from in %s" % (url or wanted))
    return newest


def _source(raw: Any) -> tuple[str, str]:
    """A link of the gang file: its path in the pod, and its name for messages."""
    if isinstance(raw, dict):
        return str(raw["path"]), str(raw.get("shown") or raw["path"])
    return str(raw), str(raw)


def _make_folders(state: LauncherState) -> None:
    for folder in (state.plan.checkpoint_dir, state.plan.artifacts_dir):
        if folder:
            os.makedirs(folder, exist_ok=True)


def _check_sources(links: dict[str, tuple[str, str]], root: str) -> None:
    own = os.path.join(root, "node") + "/"
    for target, (source, shown) in links.items():
        if source.startswith(own):
            os.makedirs(source, exist_ok=True)
        elif not os.path.exists(source):
            raise PrepareError("volumes.%s: %s does not exist" % (target, shown))


def link(work: str, target: str, source: str) -> None:
    """Link a folder of the pod into the working copy. Raises PrepareError."""
    try:
        load("bundles.workdir").link_into(work, target, source)
    except load("core.errors").EngineError as error:
        raise PrepareError("%s; add it to .longboatignore" % error if error.hint else str(error)) from None


def settle_in(state: LauncherState) -> None:
    """Provide a writable home, a user name for any user id, and `python` where the image has only `python3`."""
    env, directory = state.env, state.plan.directory
    home = env.get("HOME") or ""
    if not (home.startswith("/") and os.path.isdir(home) and os.access(home, os.W_OK | os.X_OK)) or home == "/":
        env["HOME"] = os.path.join(directory, "home")
    if not _has_name():
        env.setdefault("USER", "longboat")
        env.setdefault("LOGNAME", "longboat")
    if state.plan.setup:  # `pip install` goes to the home where the image's own folders cannot be written
        env["PATH"] = "%s:%s" % (os.path.join(env["HOME"], ".local", "bin"), env["PATH"])
        env.setdefault("PIP_BREAK_SYSTEM_PACKAGES", "1")
    folders = env["PATH"].split(":")
    if not _has_program("python", folders) and _has_program("python3", folders):
        shims = os.path.join(directory, "shims")
        os.makedirs(shims, exist_ok=True)
        write_whole(os.path.join(shims, "python"), b'#!/bin/sh\nexec python3 "$@"\n', 0o755)
        env["PATH"] = "%s:%s" % (env["PATH"], shims)  # last: a `python` that setup brings is the user's


def _has_name() -> bool:
    import pwd

    try:
        return bool(pwd.getpwuid(os.getuid()).pw_name)
    except KeyError:
        return False


def _has_program(name: str, folders: list[str]) -> bool:
    paths = [os.path.join(folder or ".", name) for folder in folders]
    return any(os.path.isfile(path) and os.access(path, os.X_OK) for path in paths)


def _data_items(
    state: LauncherState, data: list[dict[str, Any]], links: dict[str, tuple[str, str]]
) -> list[dict[str, Any]]:
    """Data imports with their target folders; a target outside all volumes becomes a link."""
    items = []
    for number, item in enumerate(data):
        to = os.path.normpath(item["to"])
        volume = next((each for each in links if to == each or to.startswith(each.rstrip("/") + "/")), None)
        if os.path.isabs(to):
            folder = _place_in(str(item.get("volume") or "/"), to)
        elif volume is not None:
            folder = _place_in(links[volume][0], os.path.relpath(to, volume))
        else:
            folder = os.path.join(state.plan.directory, "data", str(number))
            links[to] = (folder, folder)
        items.append({**item, "url": _url_of(item), "folder": folder})
    return items


def _place_in(volume: str, inside: str) -> str:
    try:
        return str(load("bundles.workdir").place_in(volume, inside))
    except load("core.errors").EngineError as error:
        raise PrepareError("data: %s" % error) from None


def _url_of(item: dict[str, Any]) -> str:
    """The URL of a data import; a secret one comes from a variable of the container. Raises PrepareError."""
    variable = item.get("variable")
    if variable is None:
        return str(item["url"])
    if not os.environ.get(variable):
        raise PrepareError("data %s: its whole URL is a secret and should be the variable %s" % (item["url"], variable))
    return os.environ[variable]


def import_data(state: LauncherState, items: list[dict[str, Any]]) -> bool:
    """Import data in a separate process, so that this one stays responsive. False: it failed, or the node must end."""
    from .fetch import run_import

    message = run_import(state, items)
    if message is not None and not state.is_over:
        state.failure = NodeFailure("data", EXIT_SETUP, message)
    return not state.is_over
