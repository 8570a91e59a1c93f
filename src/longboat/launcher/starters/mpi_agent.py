"""The agent mpirun calls in place of ssh: `agent [options] HOST command...` asks the launcher of HOST to run the
command, carries its streams, and exits with its exit code. Runs in a process of its own.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time

from ..gang.handshake import MPI, frame, proof, read_token, take_frame
from ..node.jsonfiles import dumps, loads, read_json
from .mpi_server import END, REQUEST, STDERR, STDIN, STDOUT

CONNECT_S = 30.0
"""A launcher that is flooded drops those that wait; it is asked again until then."""
EXIT_UNREACHABLE = 255  # as ssh
_TAKES_VALUE = frozenset("BbcDEeFIiJLlmOopQRSWw")


def main(argv: list[str]) -> int:
    try:
        facts = read_json(argv[1])
        host, command = parse(argv[2:])
        address = facts["peers"].get(host) or (host if host in facts["peers"].values() else None)
        if address is None:
            raise OSError("%s is not a node of this run" % host)
        port = (facts.get("ports") or {}).get(host, facts["port"])  # on one machine every node has a port of its own
        # All of it is there before the connection is: who connects and says nothing is the first to be dropped.
        request = frame(REQUEST, dumps({"command": command}).encode("ascii"))
        opening = proof(read_token(facts["token_file"]), MPI) + request
        connection, buffer = _call((address, int(port)), opening)
        return _carry(connection, buffer, host)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        sys.stderr.write("longboat agent: %s\n" % error)
        return EXIT_UNREACHABLE


def parse(words: list[str]) -> tuple[str, str]:
    """Parse host and shell command from ssh-like arguments, skipping options. Raises ValueError."""
    rest = list(words)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if len(option) == 2 and option[1] in _TAKES_VALUE and rest:
            rest.pop(0)
    if len(rest) < 2:
        raise ValueError("usage: agent [options] HOST command...")
    return rest[0].rpartition("@")[2], " ".join(rest[1:])


def _call(place: tuple[str, int], opening: bytes) -> tuple[socket.socket, bytearray]:
    """Connect until the launcher confirms that the command has started; repeats if it hangs up before. Raises OSError.

    A launcher that is flooded drops the connections that wait, and one may be ours.
    """
    until = time.monotonic() + CONNECT_S
    while True:
        connection = None
        try:
            connection = socket.create_connection(place, timeout=CONNECT_S)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.sendall(opening)
            buffer = bytearray(connection.recv(65536))
            if not buffer:
                raise OSError("%s refused the connection: is its token another one?" % place[0])
            connection.settimeout(None)
            return connection, buffer
        except OSError:
            if connection is not None:
                connection.close()
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def _carry(connection: socket.socket, buffer: bytearray, host: str) -> int:
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    poll.register(0, select.POLLIN)
    while True:
        code = _show(buffer)
        if code is not None:
            return code
        for descriptor, _ in poll.poll():
            if descriptor == 0:
                try:
                    data = os.read(0, 65536)
                except OSError:
                    data = b""
                connection.sendall(frame(STDIN, data))
                if not data:
                    poll.unregister(0)
                continue
            data = connection.recv(65536)
            if not data:
                raise OSError("connection to %s lost" % host)
            buffer += data


def _show(buffer: bytearray) -> int | None:
    while True:
        got = take_frame(buffer)
        if got is None:
            return None
        kind, data = got
        if kind == END:
            return int(loads(data.decode("ascii"))["exit_code"])
        target = {STDOUT: 1, STDERR: 2}.get(kind)
        view = memoryview(data)
        while view and target is not None:
            view = view[os.write(target, view) :]
