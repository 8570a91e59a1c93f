"""From values to the terminal: tables, formats of `-o`, times, log lines, plans.

Nothing is decided here.
"""
