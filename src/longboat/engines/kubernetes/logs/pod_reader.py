"""Reader of one pod's log over any number of broken streams: every line once, in its rank's order, nothing missing.

A stream that breaks is opened again 2 s before the last line that came, and what was seen is skipped by its number. If
what comes then does not join what was seen, the log is read from its beginning. The kubelet shows only the newest file
of a log: where lines are missing, or come faster than its files last, the rest is read from the launcher's own files
(`files`), as long as the pod lives. Lines that it cannot give are asked of `fill`, and then streams that the log may
not have at all of `rest`. Of a line that is not finished, pieces may be given as they come, and the rest in the end.
Not here: whose log it is, and where other copies are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from typing import Protocol

from longboat.engines.kubernetes.logs.lines import FOREIGN, LogGap, Parser, PodLine, batches, is_lost, take
from longboat.kubeapi.errors import ApiError, Forbidden, Invalid, ObjectNotFound
from longboat.kubeapi.refusals import Refusals

OVERLAP_S = 2.0
"""The API server takes whole seconds."""
SHORT_S, LONG_S = 0.05, 2.0
"""Between two tries: from, doubling up to."""
TRIES = 8
"""How often a finished log is tried again without any progress."""
GIVE_UP_S = 20.0
"""... and for how long: an API server takes half a minute to say of each try that a lost node does not answer."""
FILE_TRIES = 5
"""How often the launcher's files are tried without any progress, before the pod's log alone must do."""
RUSH_BYTES, RUSH_S = 512 << 10, 30.0
"""A log that brings more than this in this time is read from the launcher's files from then on. At that speed the
kubelet rotates it after 10 minutes (at 10 MiB), so whoever is slower loses nothing and costs no exec; and a reader that
is itself slow, behind a fast log, has seen as much long before the first files are gone."""


class PodSource(Protocol):
    """One pod, as far as its log goes."""

    def open(self, *, follow: bool, since: float | None) -> AbstractContextManager[Iterator[bytes]]:
        """The log's bytes; an end that is not the log's end raises Unreachable."""

    def close(self) -> None:
        """End what is being read, from another thread; what is opened later ends at once."""

    def conclude(self) -> None:
        """The container has ended, somebody else has seen: a stream that follows need not wait for its end."""

    def has_ended(self) -> bool:
        """Whether the container has ended. May raise ApiError."""

    def has_files(self, gap: LogGap | None) -> bool:
        """Whether the launcher's own files can be read, and are worth it for this gap (None: for what comes)."""

    def files(self, seen: dict[str, int], *, follow: bool) -> Iterator[bytes]:
        """Lines of the launcher's files after `seen`; with `follow` until the node has ended. Raises ApiError."""

    def fill(self, gap: LogGap) -> Iterator[PodLine]:
        """Lines that the log no longer has."""

    def rest(self, seen: dict[str, int]) -> Iterator[PodLine]:
        """Lines of any stream that are not in `seen`, as of now."""

    def last(self, seen: dict[str, int]) -> Iterator[PodLine]:
        """The log has ended, with these lines: those that it lacks, or one that tells how many."""


class _Doubtful(Exception):
    """A stream that began in the middle does not join what was seen."""


class _Lost(Exception):
    """The kubelet has no such log."""


class _Behind(Exception):
    """The pod's log has lost lines, or is about to."""


class _Rush:
    """How much came lately."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._bytes = 0

    def add(self, count: int) -> bool:
        """Note so many new bytes; whether they come too fast."""
        now = time.monotonic()
        if now - self._since > RUSH_S:
            self._since, self._bytes = now, 0
        self._bytes += count
        return self._bytes > RUSH_BYTES


class PodLog:
    """`seen` is what was read; `is_gone` when the pod is no more."""

    def __init__(self, source: PodSource, *, time: float = 0.0, pieces_since: float | None = None) -> None:
        """`pieces_since`: unfinished lines are given in pieces that are not older; None: lines are given whole."""
        self.seen: dict[str, int] = {}
        self._pieces_since = pieces_since
        self._shown: dict[str, tuple[int, int]] = {}  # the unfinished line of a stream, and how much of it was given
        self.is_gone = False
        self.trouble = ""  # why there is no progress at present
        self.is_refused = False  # ... and whether the API server said so itself: it cannot reach the machine
        self._refusals = Refusals()
        self._source = source
        self._stop = threading.Event()
        self._wake = threading.Event()  # a pause between two tries is over
        self._is_concluded = False
        self._time = time  # of the last line
        self._parser = Parser()
        self._rush = _Rush()
        self._file_tries = FILE_TRIES
        self._is_fed = False  # the launcher's files were read to their end

    def stop(self) -> None:
        """End a reading from another thread."""
        self._stop.set()
        self._wake.set()
        self._source.close()

    def conclude(self) -> None:
        """The container has ended, another thread has seen: what is left is read at once."""
        if not self._is_concluded:  # once: pauses after errors keep their length
            self._is_concluded = True
            self._wake.set()
        self._source.conclude()

    def read(self, *, follow: bool, is_over: bool = False) -> Iterator[list[PodLine]]:
        """New lines: with `follow` until the container has ended, else those that exist now.

        A follower never gives up; whoever waits for it may `stop` it.
        A last line without newline counts only if the container `is_over`: it may have been caught in mid-line.
        """
        is_last, from_start, tries, moved = not follow, not self.seen, 0, time.monotonic()
        while not self._stop.is_set():
            try:
                for lines in self._stream(follow=not is_last, from_start=from_start, is_over=is_over):
                    tries, moved, self.trouble = 0, time.monotonic(), ""
                    self._refusals.note_answer()
                    yield lines
                if is_last:
                    # What was rotated away, with nothing of the same stream since, leaves no gap to be seen.
                    yield from in_batches(self._new(self._source.last(dict(self.seen))))
                    return
                # Once more after the end: the stream may have ended before the container did.
                is_last = is_over = self._source.has_ended()
                from_start = False
                if is_last:  # nothing is awaited any more
                    tries = 0
                    continue
            except _Doubtful:
                from_start = True
                continue
            except _Behind:
                yield from self._from_files(follow=not is_last)
                from_start = False
                continue
            except ObjectNotFound:
                self.is_gone = True
                return
            except Forbidden as error:
                if self._refusals.may_pass():
                    from_start, self.trouble = False, error.message
                else:
                    # Without the right to read logs, exec may still be allowed; without both, the error is raised.
                    if not self._has_files(None):
                        raise
                    yield from self._from_files(follow=not is_last)
                    if self._is_fed:
                        return
            except Invalid as error:
                if not follow:
                    raise
                self.trouble = error.message  # its container has not started
            except (ApiError, _Lost) as error:
                from_start = False
                self.trouble = str(error)
                self.is_refused = isinstance(error, _Lost) or error.status != 0
                if is_last and (tries >= TRIES or time.monotonic() - moved > GIVE_UP_S):
                    if isinstance(error, _Lost):
                        self.is_gone = True
                        return
                    if not follow:
                        raise
            tries += 1
            if self._wake.wait(min(SHORT_S * 2 ** min(tries, 10), LONG_S) if tries > 1 else 0):
                self._wake.clear()

    def _stream(self, *, follow: bool, from_start: bool, is_over: bool) -> Iterator[list[PodLine]]:
        """One stream. `from_start`: of the whole log, whatever was seen."""
        since = None
        if not from_start and self._time and not self.seen.get(FOREIGN):
            since = self._time - OVERLAP_S
        foreign_left = self.seen.get(FOREIGN, 0)
        is_first = True
        head: PodLine | None = None  # a first line that is not the launcher's: a word of its own, or the end of a line
        with self._source.open(follow=follow, since=since) as chunks:
            for batch in batches(chunks, is_last=is_over):
                lines: list[PodLine] = []
                for raw in batch:
                    line = self._parser.parse(raw)
                    if line.key == FOREIGN:
                        if is_first and is_lost(raw):
                            raise _Lost(raw.decode("utf-8", "replace").strip())
                        if is_first and since is not None:
                            raise _Doubtful
                        if foreign_left:
                            foreign_left -= 1
                            continue
                        line = line._replace(time=self._time)
                        if is_first:
                            is_first, head = False, line
                            continue
                    is_first = False
                    if head is not None:
                        # The file of a rotated log may begin within a line, whose beginning went with the file before.
                        if line.seq <= 0 and take(head, self.seen):
                            lines.append(head)
                        head = None
                    yield from self._missing(line, lines, is_middle=since is not None, follow=follow)
                    lines += self._taken(line)
                if lines:
                    yield lines
                    is_fast = self._rush.add(sum(len(line.data) for line in lines))
                    if is_fast and follow and self._has_files(None):
                        raise _Behind
        if head is not None and take(head, self.seen):
            yield [head]

    def _has_files(self, gap: LogGap | None) -> bool:
        return self._file_tries > 0 and self._source.has_files(gap)

    def _from_files(self, *, follow: bool) -> Iterator[list[PodLine]]:
        """Lines of the launcher's files. The pod's log and termination message tell whether they are complete."""
        self._file_tries -= 1
        try:
            for batch in batches(self._source.files(dict(self.seen), follow=follow), is_last=False):
                lines = []
                for raw in batch:
                    line = self._parser.parse(raw)
                    if line.key != FOREIGN:
                        lines += self._taken(line)
                if lines:
                    self.trouble = ""
                    yield lines
                    if follow:
                        self._file_tries = FILE_TRIES
            self._is_fed = True
        except ObjectNotFound:
            pass  # the pod is gone, or its container has ended: the pod's log tells
        except ApiError as error:
            self.trouble = error.message

    def _taken(self, line: PodLine) -> list[PodLine]:
        """What is new of a line or a piece, and note that it was seen."""
        if line.start >= 0:
            new = self._next_piece(line)
        else:
            new = list(self.unshown([line])) if take(line, self.seen) else []
        if new:
            self._time = max(self._time, line.time)
        return new

    def _next_piece(self, piece: PodLine) -> list[PodLine]:
        given = self._given(piece)
        is_wanted = self._pieces_since is not None and piece.time >= self._pieces_since
        if not is_wanted or piece.seq != self.seen.get(piece.key, 0) or piece.start > given:
            return []
        data = piece.data[given - piece.start :]
        self._shown[piece.key] = (piece.seq, given + len(data))
        return [piece._replace(data=data)] if data else []

    def _given(self, line: PodLine) -> int:
        """Bytes of this line that were given in pieces."""
        seq, count = self._shown.get(line.key, (-1, 0))
        return count if seq == line.seq else 0

    def unshown(self, lines: Iterable[PodLine]) -> Iterator[PodLine]:
        """Whole lines less what was given of them in pieces."""
        for line in lines:
            given = self._given(line)
            if not given:
                yield line
            elif line.data[given:]:
                yield line._replace(data=line.data[given:])

    def _missing(
        self, line: PodLine, lines: list[PodLine], *, is_middle: bool, follow: bool
    ) -> Iterator[list[PodLine]]:
        """Lines between what was seen and this one. What was read before them goes first."""
        seen = self.seen.get(line.key, 0)
        if line.start >= 0:
            # The beginning of a line that whoever joined late was not given: the launcher has it.
            is_late = self._pieces_since is not None and line.seq == seen and line.start > self._given(line)
            if is_late and follow and self._has_files(None):
                yield lines[:]
                lines.clear()
                raise _Behind
            return
        if line.seq <= seen:
            return
        if lines:
            yield lines[:]
            lines.clear()
        if self._has_files(LogGap(line.key, seen, line.seq - seen, line.time)):
            raise _Behind
        if is_middle:
            raise _Doubtful
        yield from in_batches(self.unshown(self._source.fill(LogGap(line.key, seen, line.seq - seen, line.time))))
        self.seen[line.key] = line.seq
        yield from in_batches(self._new(self._source.rest(dict(self.seen))))

    def _new(self, lines: Iterator[PodLine]) -> Iterator[PodLine]:
        """Unseen lines of other copies; a line that stands for a gap is not counted."""
        for line in lines:
            if line.seq < 0 or take(line, self.seen):
                yield from self.unshown([line])


def in_batches(lines: Iterator[PodLine]) -> Iterator[list[PodLine]]:
    while batch := list(islice(lines, 1000)):
        yield batch
