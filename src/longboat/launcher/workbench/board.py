"""TensorBoard over the event files of runs, behind a relay that knows when somebody last looked."""

from __future__ import annotations

import os
import shutil
import threading

from . import event_files, store_events
from .relay import Relay
from .serve import Bench, IdleClock, Missing, free_port, python_with, run_server
from .words import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

LINK_S = 5.0
"""How often new event files are looked for; TensorBoard itself reads every 5 s."""
FIRST_LOOK_S = 5.0
"""Curves are there when the page opens, if their stores send them in this time; one that hangs keeps no board shut."""


def serve_board(bench: Bench, options: argparse.Namespace) -> int:
    command = tensorboard(options.program)
    logs = bench.path("logs")
    os.makedirs(logs, exist_ok=True)
    clock = IdleClock(options.idle)
    own = free_port(0)
    relay = Relay(free_port(options.port, is_exact=options.exact), own, options.open)
    over, looked = threading.Event(), threading.Event()

    def pass_on() -> None:
        while not over.is_set():
            if relay.turn(0.5):
                clock.note_use()
        relay.close()

    stores = _stores(bench, options.store)

    def look() -> None:
        folders = event_files.chosen(options.runs, options.run, options.label) if options.runs else []
        try:
            event_files.link(logs, folders + [(name, store.folder) for name, store in stores])
        except OSError:
            pass  # a run that is just being removed; the next look sees it gone

    def link() -> None:
        while not over.wait(LINK_S):
            look()

    threading.Thread(target=_copy, args=([store for _, store in stores], looked, over), daemon=True).start()
    if stores and not looked.wait(FIRST_LOOK_S):
        tell("the object store has not answered for %d s: its curves come when it does" % FIRST_LOOK_S)
    look()
    threads = [threading.Thread(target=work, daemon=True) for work in (pass_on, link)]

    def ready() -> None:
        for thread in threads:
            thread.start()
        bench.publish("board", port=relay.port, path="/")

    words = ["--logdir", logs, "--host", "127.0.0.1", "--port", str(own), "--reload_interval", "5"]
    env = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="2")
    try:
        return run_server([*command, *words], env, own, ready, clock.is_over)
    finally:
        over.set()


def _copy(stores: list[store_events.StoreEvents], looked: threading.Event, over: threading.Event) -> None:
    """`looked`: the first look at all of them is over."""
    while stores:
        for store in stores:
            store.turn()
        looked.set()
        if over.wait(store_events.LOOK_S):
            return


def _stores(bench: Bench, words: list[str]) -> list[tuple[str, store_events.StoreEvents]]:
    """By the name that is shown: `NAME=URL`."""
    pairs = [store_events.named_url(word) for word in words]
    folders = [bench.path(os.path.join("stores", str(number))) for number in range(len(pairs))]
    return [(name, store_events.StoreEvents(url, folder, os.environ)) for (name, url), folder in zip(pairs, folders)]


def tensorboard(program: str) -> list[str]:
    path = shutil.which(program)
    if path is not None:
        return [path]
    python = python_with("tensorboard")
    if python is not None:
        return [python, "-m", "tensorboard.main"]
    package = "the package is `tensorboard`; `--setup 'pip install tensorboard'` brings it"
    raise Missing("TensorBoard is not installed here: %s" % package)
