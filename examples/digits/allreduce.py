"""Averages arrays over all processes of a training, with sockets and nothing else.

A star: rank 0 listens on MASTER_ADDR:MASTER_PORT, every other rank connects (in any order, before or after), sends
its array and receives the mean. Summed in the order of ranks, so every rank gets the same bits. Good for small models
on few processes; a large one would use a ring or its framework's own.
"""

from __future__ import annotations

import os
import socket
import struct
import time

import numpy as np

HELLO = struct.Struct("!4sI")
MAGIC = b"avg1"


class AllReduce:
    def __init__(self, rank: int, world: int, address: str, port: int, timeout_s: float = 60.0) -> None:
        self.rank, self.world = rank, world
        self.peers: dict[int, socket.socket] = {}  # rank 0: everybody; the others: rank 0
        if world > 1:
            deadline = time.monotonic() + timeout_s
            if rank == 0:
                self.peers = accept_all(world, address, port, deadline)
            else:
                self.peers = {0: connect(rank, address, port, deadline)}

    @classmethod
    def from_environment(cls) -> AllReduce:
        env = os.environ
        rank, world = int(env.get("RANK", "0")), int(env.get("WORLD_SIZE", "1"))
        return cls(rank, world, env.get("MASTER_ADDR", "127.0.0.1"), int(env.get("MASTER_PORT", "29500")))

    def mean(self, array: np.ndarray) -> np.ndarray:
        """The mean of this array over all ranks; every rank must call it with the same shape."""
        array = np.ascontiguousarray(array, dtype=np.float64)
        if self.world == 1:
            return array
        if self.rank:
            self.peers[0].sendall(array.tobytes())
            return receive(self.peers[0], array)
        total = array.copy()
        for rank in range(1, self.world):
            total += receive(self.peers[rank], array)
        total /= self.world
        for peer in self.peers.values():
            peer.sendall(total.tobytes())
        return total

    def close(self) -> None:
        for peer in self.peers.values():
            peer.close()


def accept_all(world: int, address: str, port: int, deadline: float) -> dict[int, socket.socket]:
    peers: dict[int, socket.socket] = {}
    with socket.create_server((address, port), backlog=world) as server:
        while len(peers) < world - 1:
            server.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                peer, _ = server.accept()
            except OSError:
                missing = sorted(set(range(1, world)) - set(peers))
                raise SystemExit(f"ranks {missing} did not connect to {address}:{port}") from None
            peer.settimeout(5.0)
            try:
                magic, rank = HELLO.unpack(peer.recv(HELLO.size, socket.MSG_WAITALL))
            except (OSError, struct.error):
                magic, rank = b"", 0
            if magic != MAGIC or not 0 < rank < world or rank in peers:
                peer.close()  # a stranger
                continue
            peers[rank] = steady(peer)
    return peers


def connect(rank: int, address: str, port: int, deadline: float) -> socket.socket:
    while True:
        try:
            peer = socket.create_connection((address, port), timeout=5.0)
        except OSError as error:
            if time.monotonic() > deadline:
                raise SystemExit(f"rank 0 cannot be reached at {address}:{port}: {error}") from None
            time.sleep(0.05)
            continue
        peer.sendall(HELLO.pack(MAGIC, rank))
        return steady(peer)


def steady(peer: socket.socket) -> socket.socket:
    peer.settimeout(None)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def receive(peer: socket.socket, like: np.ndarray) -> np.ndarray:
    data = bytearray(like.nbytes)
    view = memoryview(data)
    got = 0
    while got < len(data):
        count = peer.recv_into(view[got:])
        if count == 0:
            raise SystemExit("another rank has gone")
        got += count
    return np.frombuffer(data, dtype=like.dtype).reshape(like.shape)
