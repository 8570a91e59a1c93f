"""Response bodies, read whole within bounds: a server, or whoever is on the way, may send without end."""

from __future__ import annotations

import http.client
import zlib

MOST_ANSWER = 512 << 20
"""Of one answer, unpacked: the largest are pages of 500 objects, none of which has more than 1.5 MB."""
MOST_REFUSAL = 16 << 20  # of an answer that only says no


def read_whole(response: http.client.HTTPResponse, most: int = MOST_ANSWER) -> bytes:
    """The body. Raises HTTPException for one that breaks off or has no end."""
    content = response.read(most)
    if response.length:
        if len(content) < most:
            raise http.client.IncompleteRead(content, response.length)
        raise _too_long(most)
    if response.read(1):
        raise _too_long(most)
    return content


def unpacked(content: bytes, most: int = MOST_ANSWER) -> bytes:
    """A body that came compressed. Raises zlib.error, also for one that grows without measure."""
    unpacking = zlib.decompressobj(wbits=31)
    unpacked_bytes = unpacking.decompress(content, most)
    if unpacking.unconsumed_tail:
        raise zlib.error(f"the answer is longer than {most >> 20} MiB")
    if not unpacking.eof:
        raise zlib.error("the answer breaks off")
    return unpacked_bytes


def _too_long(most: int) -> http.client.HTTPException:
    return http.client.HTTPException(f"the answer is longer than {most >> 20} MiB")
