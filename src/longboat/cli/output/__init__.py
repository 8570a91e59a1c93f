"""From values to the terminal: tables, formats of `-o`, times, log lines, plans.

Nothing is read or decided here. May import values of `core`, `engines`, `sdk`, `specs`.
"""
