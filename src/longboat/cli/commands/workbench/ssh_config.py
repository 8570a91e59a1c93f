"""`longboat ssh-config`: plain ssh, and editors that use it, to an open shell or notebook."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping

import click

from longboat.cli.input.arguments import run_names
from longboat.cli.input.engine_option import engine_options, open_engine, same_place
from longboat.core.errors import NotFound
from longboat.sdk.names import find_run

WHERE = ("LONGBOAT_HOME", "LONGBOAT_ENGINE", "KUBECONFIG")
"""Variables that say where runs are."""
PATHS = {"LONGBOAT_HOME", "KUBECONFIG"}


@click.command("ssh-config", short_help="Print the ssh configuration of an open shell or notebook.")
@click.argument("run", shell_complete=run_names)
@click.option("--connect", is_flag=True, hidden=True, help="Be the ProxyCommand.")
@engine_options
def command(run: str, connect: bool) -> int:
    """Print the ssh configuration of an open shell or notebook, for ~/.ssh/config.

    ssh longboat-RUN then works, as do scp, rsync and VS Code. The connection goes through the API server of the
    cluster by exec: no port is opened anywhere. The image needs sshd (the package openssh-server).
    """
    from longboat.engines.shared.home import Home
    from longboat.workbench.sessions import check_from_here, read_session
    from longboat.workbench.ssh import client_key, host_block

    place = open_engine(quiet=connect)
    status = find_run(place, run)
    check_from_here(place, status)
    session = read_session(place, status) if status.phase == "running" else None
    if session is None:
        raise NotFound(
            f"{status.name} is no open shell or notebook ({status.phase})", hint="longboat shell -d --gpus 1 opens one"
        )
    key = client_key(Home())
    if connect:
        return place.exec(status.name, [*session.launcher, "--workbench", "ssh", session.folder, key.public], rank=0)
    words = [*kept_variables(os.environ), *program(sys.argv[0]), "ssh-config", "--connect", status.name]
    proxy = shlex.join(words) + same_place()
    print(host_block(status.name, session.user, proxy, key.path), end="")
    return 0


def kept_variables(environment: Mapping[str, str]) -> list[str]:
    """What ssh has to set again for this program to find the run: an editor was not started in this shell."""
    kept = {name: environment[name] for name in WHERE if environment.get(name)}
    for name in PATHS & set(kept):
        kept[name] = os.pathsep.join(os.path.abspath(path) if path else "" for path in kept[name].split(os.pathsep))
    return ["env", *(f"{name}={paths}" for name, paths in kept.items())] if kept else []


def program(called: str) -> list[str]:
    """This program from any folder: ssh is started wherever the user is."""
    if os.path.basename(called) == "__main__.py":
        return [sys.executable, "-m", "longboat"]
    return [os.path.abspath(called if os.sep in called else shutil.which(called) or called)]
