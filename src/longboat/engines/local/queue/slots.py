"""Resource slots of this machine as OS file locks: GPUs, ports, addresses, queue tickets. A crash frees them all.

The lock descriptors are inherited by the launchers, so a slot stays taken until the last launcher of the run is gone.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from longboat.core.errors import EngineError
from longboat.core.guards.decoding import decode
from longboat.engines.local.queue.admission import FreeResources, Ticket, decide_admission, queue_order
from longboat.engines.local.queue.machine import Gpu, LocalMachine
from longboat.engines.local.queue.openings import openings
from longboat.engines.local.queue.requests import RequestedResources, take_gpus
from longboat.engines.local.queue.sizes import SizeChoice, choose_size
from longboat.engines.shared.files import (
    disk_error,
    locked,
    make_folder,
    open_lock,
    remove_free_locks,
    take_lock,
    try_lock,
    write_bytes,
)
from longboat.engines.shared.home import Home

PORTS = range(20000, 32000)  # below the range the kernel gives to outgoing connections
BLOCK = 16  # ports behind one lock: a small run takes a block or two
ADDRESS_BLOCKS = range(1 << 8, 17 << 8)
"""127.1.0.0/24 to 127.16.255.0/24: as many runs at once as no machine has. 127.0 is left to other programs."""
BLOCK_NODES = 253
"""x.x.x.2 to x.x.x.254: what ends in 0, 1 or 255 is taken for something else by some programs."""
SHARED = (0,)
"""127.0.0.0/24, for a dry run, and where every block is taken."""


class SlotTicket:
    """This run's ticket, and the GPUs it was given."""

    def __init__(
        self,
        home: Home,
        *,
        run: str,
        number: int,
        requests: Sequence[RequestedResources],
        priority: int,
        held: Callable[[], str] = lambda: "",
    ) -> None:
        """`requests`: of each size that the run may have, the smallest first. `held`: why a budget holds the run back;
        empty: none does."""
        self._home, self._held = home, held
        self.requests = tuple(requests)
        self._folder = home.folder("queue")
        self._path = self._folder / f"{run}.json"
        self._locks: dict[str, int] = {}  # of GPUs, by id
        with locked(self._folder / ".lock"):
            self._lock = open_lock(self._folder / f"{run}.lock")
            try_lock(self._lock)
            least = self.requests[0] if len(self.requests) > 1 else None
            self.ticket = Ticket(run=run, number=number, request=self.requests[0], priority=priority, least=least)
            self._write()

    @property
    def descriptors(self) -> list[int]:
        """Lock descriptors that launchers inherit."""
        return [self._lock, *self._locks.values()]

    @property
    def place(self) -> int:
        """Which of its requests it holds, or waits for."""
        return self.requests.index(self.ticket.request)

    def try_start(self, machine: LocalMachine) -> tuple[SizeChoice, list[tuple[Gpu, ...]]]:
        """The size with which the run may start now, and GPUs per node; or what it waits for."""
        held = self._held()
        if bool(held) is not self.ticket.is_held:
            self._change(is_held=bool(held))
        if held:
            return SizeChoice(place=None, reason=held), []
        with locked(self._folder / ".lock"):
            tickets = self._tickets()
            locks: dict[str, int] = {}
            try:
                free = free_resources(self._home, machine, self.ticket.request, tickets, locks)
                choice = choose_size(self.ticket, tickets, free, self.requests)
                if choice.place is None:
                    return choice, []
                request = self.requests[choice.place]
                given = take_gpus(free.gpus, request) or []
                taken = {gpu.id: locks[gpu.id] for node in given for gpu in node}
                self._hold(taken, request)
                locks = {id: lock for id, lock in locks.items() if id not in taken}
                return choice, given
            finally:
                for descriptor in locks.values():
                    os.close(descriptor)

    def _hold(self, locks: dict[str, int], request: RequestedResources) -> None:
        """Hold these GPUs for the request, once the ticket says so. The folder is locked. Raises EngineError."""
        ticket = self._holding(locks, request)
        write_bytes(self._path, msgspec.json.encode(ticket))
        self._locks, self.ticket = locks, ticket

    def _holding(self, locks: dict[str, int], request: RequestedResources) -> Ticket:
        return msgspec.structs.replace(self.ticket, holds=True, gpus=tuple(locks), request=request)

    def change_priority(self, priority: int) -> None:
        self._change(priority=priority)

    def _change(self, **fields: Any) -> None:
        with locked(self._folder / ".lock"):
            self.ticket = msgspec.structs.replace(self.ticket, **fields)
            self._write()

    def waiting(self) -> list[str]:
        """Runs that wait, in their order."""
        with locked(self._folder / ".lock"):
            return [ticket.run for ticket in queue_order(self._tickets())]

    def release(self) -> None:
        with locked(self._folder / ".lock"):
            self._path.unlink(missing_ok=True)
            self._path.with_suffix(".lock").unlink(missing_ok=True)
        for descriptor in self.descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._locks = {}

    def _write(self) -> None:
        write_bytes(self._path, msgspec.json.encode(self.ticket))

    def _tickets(self) -> list[Ticket]:
        """Everybody's tickets, in the order of their names."""
        return sorted((self.ticket, *_tickets_of_others(self._folder, self._path)), key=lambda ticket: ticket.run)


def foresee_start(home: Home, machine: LocalMachine, request: RequestedResources, priority: int) -> str | None:
    """What a run with this request (of an elastic one the smallest) would wait for if it came now; None: it would
    start. Takes nothing."""
    folder = home.folder("queue")
    with locked(folder / ".lock"):
        tickets = _tickets_of_others(folder, None)
        last = max((ticket.number for ticket in tickets), default=0)
        mine = Ticket(run="", number=last + 1, request=request, priority=priority)
        held: dict[str, int] = {}
        try:
            return decide_admission(mine, [*tickets, mine], free_resources(home, machine, request, tickets, held))
        finally:
            for descriptor in held.values():
                os.close(descriptor)


def openings_of(home: Home, machine: LocalMachine, run: str) -> tuple[str, ...]:
    """What would let a run start that waits. Takes nothing."""
    folder = home.folder("queue")
    with locked(folder / ".lock"):
        tickets = _tickets_of_others(folder, None)
        mine = next((ticket for ticket in tickets if ticket.run == run and not ticket.holds), None)
        if mine is None or mine.is_held:
            return ()
        held: dict[str, int] = {}
        try:
            free = free_resources(home, machine, mine.request, tickets, held)
            return openings(mine, tickets, free, {gpu.id: gpu for gpu in machine.gpus})
        finally:
            for descriptor in held.values():
                os.close(descriptor)


def free_gpus(home: Home, gpus: Sequence[Gpu]) -> list[Gpu]:
    """Those that nobody holds at this moment; GPUs of this machine are shared by the homes of all users."""
    free = []
    for gpu in gpus:
        descriptor = _open_gpu(home, gpu)
        if try_lock(descriptor):
            free.append(gpu)
        os.close(descriptor)
    return free


def _tickets_of_others(folder: Path, own: Path | None) -> list[Ticket]:
    """Tickets but our own; those whose holders are gone are removed. The folder is locked."""
    tickets = []
    for unfinished in folder.glob("*.tmp"):  # we hold the lock: whoever was writing it is dead
        unfinished.unlink(missing_ok=True)
    names = {path.stem for path in folder.iterdir() if path.suffix in (".json", ".lock")} - {".lock"}
    for path in (folder / f"{name}.json" for name in sorted(names)):
        if path == own:
            continue
        lock = path.with_suffix(".lock")
        descriptor = open_lock(lock)
        try:
            if try_lock(descriptor):
                path.unlink(missing_ok=True)
                lock.unlink(missing_ok=True)
                continue
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                tickets.append(decode(path.read_bytes(), Ticket))
        finally:
            os.close(descriptor)
    return tickets


def free_resources(
    home: Home,
    machine: LocalMachine,
    request: RequestedResources,
    tickets: Sequence[Ticket],
    held: dict[str, int],
) -> FreeResources:
    """Free resources; `held` gets the lock of every free GPU, if any are requested. The folder is locked."""
    if request.gpu_count:
        for gpu in machine.gpus:
            descriptor = _open_gpu(home, gpu)
            if try_lock(descriptor):
                held[gpu.id] = descriptor
            else:
                os.close(descriptor)
    holding = [ticket.request for ticket in tickets if ticket.holds]
    return FreeResources(
        gpus=tuple(gpu for gpu in machine.gpus if gpu.id in held),
        cpus=machine.cpus - sum(request.cpus for request in holding),
        memory=machine.memory - sum(request.memory for request in holding),
    )


def discard_ticket(home: Home, run: str) -> None:
    """Remove what a killed supervisor of a run that is gone may have left in the queue."""
    folder = home.root / "queue"
    if folder.is_dir():
        with locked(folder / ".lock"):
            for suffix in ("json", "lock"):
                (folder / f"{run}.{suffix}").unlink(missing_ok=True)


def _open_gpu(home: Home, gpu: Gpu) -> int:
    """The lock of a GPU: shared by all users for a real one, of this home for a stated one."""
    import hashlib

    name = hashlib.sha256(gpu.id.encode()).hexdigest()[:24]
    if gpu.is_stated:
        return open_lock(home.folder("gpus") / name)
    return _open_shared(_shared_folder() / f"gpu-{name}")


def _shared_folder() -> Path:
    given = os.environ.get("LONGBOAT_SLOTS")
    if given:
        return make_folder(Path(given))
    for parent in ("/run/lock", "/tmp"):
        path = Path(parent) / "longboat"
        try:
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                path.chmod(0o1777)
            if not path.is_symlink() and path.is_dir() and os.access(path, os.W_OK | os.X_OK):
                return path
        except OSError:
            continue
    raise EngineError("no place for the locks of the GPUs", hint="set LONGBOAT_SLOTS to a folder all users can write")


def _open_shared(path: Path) -> int:
    """Open a lock file that another user may have made. Never follows a link, never creates over one."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    for _ in range(3):
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
                os.fchmod(descriptor, 0o644)
                return descriptor
        except OSError as error:
            raise disk_error(error, f"open {path}") from error
    raise EngineError(f"cannot open {path}")


class Ports:
    """Blocks of ports that no other run uses, free on every address, and of the nodes' own addresses."""

    def __init__(self) -> None:
        self.descriptors: list[int] = []
        self.addresses: list[str] = []
        self._folders: list[Path] = []

    def take(self, home: Home, counts: Sequence[int]) -> list[tuple[int, ...]]:
        """Ports for every node, and an address for each in `addresses`."""
        folder = home.folder("ports")
        self._folders = [folder]
        free: list[int] = []
        starts = PORTS[::BLOCK]
        first = os.getpid() * 7919 % len(starts)  # spread, so that runs rarely try the same block
        for start in (*starts[first:], *starts[:first]):
            if len(free) >= sum(counts):
                break
            descriptor = take_lock(folder / str(start))
            if descriptor is None:
                continue
            ports = [port for port in range(start, start + BLOCK) if _is_free(port)]
            if len(ports) < BLOCK:
                os.close(descriptor)
                continue
            self.descriptors.append(descriptor)
            free.extend(ports)
        if len(free) < sum(counts):
            raise EngineError(f"not enough free ports: {sum(counts)} needed in {PORTS.start}-{PORTS.stop}")
        blocks = AddressBlocks()
        self.addresses = blocks.take(home, len(counts))
        self.descriptors += blocks.descriptors
        self._folders += blocks.folders
        given, position = [], 0
        for count in counts:
            given.append(tuple(free[position : position + count]))
            position += count
        return given

    def release(self) -> None:
        """Give them back. A block that a process of the run still has stays taken."""
        _release(self.descriptors, self._folders)


def _release(descriptors: list[int], folders: Sequence[Path]) -> None:
    while descriptors:
        os.close(descriptors.pop())
    for folder in folders:
        remove_free_locks(folder)


def _is_free(port: int) -> bool:
    import _socket  # the half of `socket` in C: the other half takes longer to load than sixteen ports to try

    probe = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    try:
        probe.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
        probe.bind(("", port))
    except OSError:
        return False
    finally:
        probe.close()
    return True


class AddressBlocks:
    """Blocks of 127.0.0.0/8 that no other run uses: two runs may listen on the same port, each at its own addresses.

    Linux only: elsewhere all nodes are 127.0.0.1.
    """

    def __init__(self) -> None:
        self.descriptors: list[int] = []
        self.folders: list[Path] = []

    def take(self, home: Home, nodes: int) -> list[str]:
        """An address for every node. Runs of other users know nothing of our locks: where we start is random."""
        if not sys.platform.startswith("linux"):
            return addresses_in(SHARED, nodes)
        folder = home.folder("addresses")
        self.folders = [folder]
        blocks: list[int] = []
        first = int.from_bytes(os.urandom(4), sys.byteorder) % len(ADDRESS_BLOCKS)
        for block in (*ADDRESS_BLOCKS[first:], *ADDRESS_BLOCKS[:first]):
            if len(blocks) * BLOCK_NODES >= nodes:
                break
            descriptor = take_lock(folder / str(block))
            if descriptor is not None:
                self.descriptors.append(descriptor)
                blocks.append(block)
        return addresses_in(blocks if len(blocks) * BLOCK_NODES >= nodes else SHARED, nodes)

    def release(self) -> None:
        _release(self.descriptors, self.folders)


def addresses_in(blocks: Sequence[int], nodes: int) -> list[str]:
    """Addresses of so many nodes, one block after the other; behind the last one the following blocks."""
    if not sys.platform.startswith("linux"):
        return ["127.0.0.1"] * nodes
    addresses = []
    for index in range(nodes):
        number, place = divmod(index, BLOCK_NODES)
        block = blocks[number] if number < len(blocks) else blocks[-1] + number - len(blocks) + 1
        addresses.append(f"127.{block >> 8}.{block & 255}.{place + 2}")
    return addresses
