"""The listening socket of a service, and the port that it is to have."""

from __future__ import annotations

import errno
import socket

from longboat.core.errors import UsageError


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    except (TypeError, ValueError, OverflowError) as error:  # a name or a number that no address has
        listener.close()
        raise OSError(errno.EINVAL, str(error)) from None
    return listener


def checked_port(host: str, port: int) -> int:
    """The port, or a free one for 0. Raises UsageError where it cannot be listened on."""
    try:
        with listen(host, port) as listener:
            return int(listener.getsockname()[1])
    except OSError as error:
        raise UsageError(
            f"port {port} of {host!a} cannot be listened on: {error.strerror or error}",
            hint="another --port or --host; without them a free port of 127.0.0.1 is taken",
        ) from None
