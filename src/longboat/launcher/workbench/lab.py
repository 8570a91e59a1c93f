"""JupyterLab in the working copy, with a token; it ends when no kernel, terminal or file was used for a while."""

from __future__ import annotations

import os
import secrets
import shutil
import time

from .edits import EditKeeper, newest_change
from .first_notebook import provide
from .serve import Bench, Foreign, IdleClock, Missing, free_port, python_with, run_server
from .words import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

PORT = 8888  # Jupyter's own
ASK_S = 10.0
"""How often the server is asked what its kernels do; culling is counted in minutes."""
ANSWER_S = 10.0  # a server that does not answer in so long is busy


def serve_lab(bench: Bench, options: argparse.Namespace) -> int:
    command = jupyterlab()
    token = secrets.token_urlsafe(24)
    page = provide(os.getcwd())  # before edits are looked for: it is none until somebody changes it
    keeper = None
    if options.edits:
        keeper = EditKeeper(os.getcwd(), os.environ["LONGBOAT_ARTIFACTS_DIR"], bench.folder)

    def serve(port: int) -> int:
        ask_s = min(ASK_S, options.idle / 4 or ASK_S)
        watch = LabWatch(port, token, IdleClock(options.idle), ask_s, keeper)

        def ready() -> None:
            watch.check_token()
            bench.publish("lab", port=port, token=token, path="/lab/tree/" + page if page else "/lab")

        env = dict(os.environ, JUPYTER_TOKEN=token, JUPYTER_RUNTIME_DIR=bench.path("runtime"))
        return run_server([*command, *flags(port, os.getcwd(), options.open)], env, port, ready, watch.turn)

    try:
        code = serve(free_port(options.port or PORT, is_exact=options.exact))
        if code and not options.exact and not bench.is_published:
            code = serve(free_port(0))  # somebody was quicker at that port
        return code
    finally:
        if keeper is not None:
            keeper.save()


def flags(port: int, root: str, address: str) -> list[str]:
    values = {
        "ServerApp.ip": address,
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.open_browser": False,
        "ServerApp.root_dir": root,
        "ServerApp.allow_root": os.getuid() == 0,
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",  # no questions, no calls to elsewhere
    }
    return ["--%s=%s" % pair for pair in values.items()]


def jupyterlab() -> list[str]:
    """Of the Python that the ranks have; its kernels run with the same packages."""
    python = python_with("jupyterlab", "ipykernel")
    if python is not None:
        return [python, "-m", "jupyterlab"]
    program = shutil.which("jupyter-lab")
    if program is None:
        package = "the package is `jupyterlab`; `--setup 'pip install jupyterlab'` brings it"
        raise Missing("JupyterLab is not installed here: %s" % package)
    return [program]


class LabWatch:
    """Whether somebody uses the server: kernels that compute, terminals, files that are saved."""

    def __init__(self, port: int, token: str, clock: IdleClock, ask_s: float, keeper: EditKeeper | None) -> None:
        self._url = "http://127.0.0.1:%d/api/" % port
        self._token = token
        self._clock = clock
        self._ask_s = ask_s
        self._keeper = keeper
        self._asked = time.monotonic()
        self._signs: tuple[object, ...] = ()

    def turn(self) -> bool:
        """Whether it is over."""
        now = time.monotonic()
        if self._keeper is not None:
            self._keeper.turn()
        if now - self._asked >= self._ask_s:
            self._asked = now
            signs = self._observe()
            if signs != self._signs or "busy" in signs:
                self._clock.note_use()
            self._signs = signs
        return self._clock.is_over()

    def _observe(self) -> tuple[object, ...]:
        """What changes when somebody uses it. A page that is merely open changes nothing."""
        try:
            kernels, terminals = self._get("kernels"), self._get("terminals")
        except (OSError, ValueError):
            return ("busy",)  # too busy to answer; a server that ended is noticed elsewhere
        states = [kernel.get("execution_state") for kernel in kernels]
        times = [each.get("last_activity") for each in (*kernels, *terminals)]
        return ("busy" if "busy" in states else "idle", *times, newest_change(os.getcwd()))

    def check_token(self) -> None:
        """A configuration of the image or the user can switch the token off: then everybody could run code here."""
        import urllib.error

        try:
            self._get("kernels")
        except urllib.error.HTTPError:
            raise Foreign from None
        try:
            self._get("kernels", is_known=False)
        except urllib.error.HTTPError:
            return
        tell("the configuration of Jupyter switches its token off: remove IdentityProvider.token from it")
        raise PermissionError("a notebook without a token is open to every user of the machine")

    def _get(self, name: str, *, is_known: bool = True) -> Any:
        import json
        import urllib.request

        headers = {"Authorization": "token " + self._token} if is_known else {}
        # No proxy of the environment: it is this very machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(urllib.request.Request(self._url + name, headers=headers), timeout=ANSWER_S) as answer:
            return json.load(answer)
