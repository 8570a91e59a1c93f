"""Cleaning as one test sees it."""

from __future__ import annotations

from testbed import cleanup


def cleaned() -> list[str]:
    """Clusters of the test's own state folder that `clean` removed. Orphaned processes and groups are the machine's:
    another test's cluster may be going away at this very moment."""
    return [line for line in cleanup.clean() if line.startswith("cluster ")]
