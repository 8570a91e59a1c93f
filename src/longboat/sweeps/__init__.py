"""Sweeps: many trials of one job with different parameters, each of them a run of an engine.

Here: which points of a space are tried (`space`, `tpe`, `asha`, `decide`; pure), what is stored of a sweep (`record`),
who submits its trials (`drive`), what came of them (`report`). How a job file describes a sweep is in `specs`, how
parameters reach a rank in `specs.params`. May import `engines`, `metrics`, `bundles`, `specs`, `core`.
"""
