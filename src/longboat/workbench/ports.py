"""Ports of this machine: is one free, and which is taken instead."""

from __future__ import annotations

import os
import socket

from longboat.core.errors import UsageError

HOST = "127.0.0.1"


def check_free(port: int) -> None:
    """Raise UsageError for a port that somebody else has."""
    try:
        listen(port).close()
    except OSError as error:
        raise taken(port, error) from error


def taken(port: int, error: OSError) -> UsageError:
    """That somebody else has a port."""
    return UsageError(
        f"port {port} of this machine cannot be used: {os.strerror(error.errno or 0)}",
        hint="leave --port out, or name another one",
    )


def listen(port: int) -> socket.socket:
    """A listening socket of 127.0.0.1; port 0 is any that is free."""
    return socket.create_server((HOST, port), backlog=64)


def listen_near(port: int) -> socket.socket:
    """The usual port, else any that is free."""
    try:
        return listen(port)
    except OSError:
        return listen(0)
