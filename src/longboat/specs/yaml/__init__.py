"""YAML 1.2 as a tree of nodes that know their line and column.

What fields mean is in `specs.fields`; what changes or writes a job file is one folder up. May import `core`.
"""
