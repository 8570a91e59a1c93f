"""YAML 1.2 as a tree of nodes that know their line and column: read, changed by `--set` and `${VAR}`, written.

What fields mean is in `specs.fields`. May import `core`.
"""
