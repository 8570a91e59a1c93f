"""`longboat ui`: the dashboard."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import click

from longboat.cli.input.arguments import PATH
from longboat.cli.input.engine_option import complete_contexts, named_context
from longboat.cli.output.terminal import say
from longboat.core.errors import UsageError

PEM = "a certificate and its key in PEM form, each in a file"


def readable(_context: click.Context, param: click.Parameter, path: str | None) -> str | None:
    """Raises UsageError, or OSError where the user may not reach the file: that does not mean that it is not there."""
    try:
        if path is not None:
            open(path, "rb").close()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise UsageError(f"{param.opts[0]}: {path}: {error.strerror}", hint=PEM) from None
    return path


@click.command("ui", short_help="Show runs, GPUs and sweeps in a browser.")
@click.option(
    "--on",
    "contexts",
    metavar="CONTEXT",
    multiple=True,
    callback=named_context,
    shell_complete=complete_contexts,
    help="Also the cluster of this kubeconfig context. Repeatable.",
)
@click.option("--namespace", "namespaces", multiple=True, metavar="NAME", help="In these clusters. Repeatable.")
@click.option("--no-local", is_flag=True, help="Clusters only, not this machine.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="Port (default: a free one).")
@click.option("--browser/--no-browser", default=True, help="Open the page in a browser (default), or only print it.")
@click.option("--read-only", is_flag=True, help="Nothing can be stopped, started or removed from the page.")
@click.option(
    "--bind", default="127.0.0.1", metavar="ADDRESS", help="Address to listen on (default: this machine only)."
)
@click.option("--tls-cert", type=PATH, callback=readable, metavar="FILE", help="With --bind: certificate.")
@click.option("--tls-key", type=PATH, callback=readable, metavar="FILE", help="With --bind: its private key.")
@click.option("--insecure-bind", is_flag=True, help="--bind without TLS: behind a proxy that has it.")
@click.option("--public-url", metavar="URL", help="Where browsers reach it behind a proxy: https://HOST[:PORT].")
@click.option("--token-file", type=PATH, metavar="FILE", help="The token, instead of a new one; not printed.")
@click.option(
    "--users-from-proxy",
    is_flag=True,
    help="Behind an authenticating proxy: act in clusters as the user that it names. Needs --token-file, --public-url.",
)
@click.option("--group", "groups", multiple=True, metavar="NAME", help="A group of users that counts. Repeatable.")
def command(
    contexts: Sequence[str],
    namespaces: Sequence[str],
    port: int,
    browser: bool,
    read_only: bool,
    bind: str,
    no_local: bool,
    **more: Any,
) -> None:
    """Show runs of this machine and of clusters in a browser, until Ctrl-C.

    The first line on stdout is the address, with a token that is new each time.
    """
    from longboat.cli.commands.workbench.opening import browser as opened
    from longboat.web.server import DashboardOptions, DashboardServer, check_options, import_uvicorn

    options = DashboardOptions(
        host=bind,
        port=port,
        readonly=read_only,
        certificate=more["tls_cert"],
        key=more["tls_key"],
        allow_plain=bool(more["insecure_bind"]),
        public_url=more["public_url"],
        token_file=more["token_file"],
        has_users=more["users_from_proxy"],
        groups=tuple(more["groups"]),
    )
    check_options(options)
    import_uvicorn()
    from longboat.web.places import open_places

    server = DashboardServer(open_places(contexts, namespaces, has_local=not (no_local or options.has_users)), options)
    print(server.address, flush=True)
    say("longboat: the dashboard runs until Ctrl-C")
    with opened(server.address, is_wanted=browser), contextlib.suppress(KeyboardInterrupt):
        server.run()  # it has closed when it raises
