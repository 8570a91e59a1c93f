"""SSH servers of this machine, each a process of its own, for machines on which no hosts can be made.

They are no hosts: every one shows this machine. What they are for is a machine with a core for each of them, where a
client that keeps hosts waiting for each other would show. `python bench/ssh_servers.py FOLDER` is one server.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncssh

HOST_KEY, USER_KEY = "host_key", "user_key"


@contextmanager
def serve(count: int, folder: Path) -> Iterator[list[int]]:
    """The ports of as many servers; `folder` gets their keys, and `config`, with which ssh knows them."""
    for name in (HOST_KEY, USER_KEY):
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(folder / name)
        key.write_public_key(folder / f"{name}.pub")
    command = [sys.executable, __file__, str(folder)]
    servers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    try:
        ports = [int(server.stdout.readline()) for server in servers if server.stdout]
        public = (folder / f"{HOST_KEY}.pub").read_text()
        (folder / "known_hosts").write_text("".join(f"[127.0.0.1]:{port} {public}" for port in ports))
        options = f"IdentityFile {folder / USER_KEY}\nUserKnownHostsFile {folder / 'known_hosts'}\n"
        (folder / "config").write_text(options)
        yield ports
    finally:
        for server in servers:
            server.kill()
            server.wait()


async def run_command(process: asyncssh.SSHServerProcess[bytes]) -> None:
    shell = ["/bin/sh", "-c", process.command or ""]
    pipe = subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*shell, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    out, err = await child.communicate()
    process.stdout.write(out)
    process.stderr.write(err)
    process.exit(child.returncode or 0)


async def listen(folder: Path) -> None:
    server = await asyncssh.listen(
        "127.0.0.1", 0, process_factory=run_command, encoding=None,
        server_host_keys=[str(folder / HOST_KEY)], authorized_client_keys=str(folder / f"{USER_KEY}.pub"),
    )  # fmt: skip
    print(server.get_port(), flush=True)
    await server.wait_closed()


if __name__ == "__main__":
    asyncio.run(listen(Path(sys.argv[1])))
