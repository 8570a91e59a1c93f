"""What goes wrong in the testbed, told in one line; and what a machine lacks, told by name.

Not the errors of Longboat itself: nothing here is shown to its users.
"""

from __future__ import annotations


class TestbedError(Exception):
    """Something failed; the text says what and, where known, what to do."""

    __test__ = False  # pytest would take the name for a test class


class Missing(TestbedError):
    """This machine lacks a command, a package or a right that the asked-for part needs."""


class Hopeless(TestbedError):
    """What is waited for cannot come any more."""
