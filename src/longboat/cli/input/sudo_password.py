"""The password for sudo on hosts, asked for once where somebody is there to answer."""

from __future__ import annotations

import sys

import click

from longboat.cli.output.terminal import is_terminal


def ask_password() -> str | None:
    if not is_terminal(sys.stdin):
        return None
    answer: str = click.prompt("password for sudo on the hosts", hide_input=True, err=True)
    return answer
