"""From words and flags to values: options, targets, job files, the engine that is meant.

Nothing is printed here.
"""
