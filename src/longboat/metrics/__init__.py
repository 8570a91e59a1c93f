"""Metrics of runs: series, files of them, down-sampling, TensorBoard event files, judgements, curves. Pure but for
reading files that are named.

Sampling is done by the launcher, which carries the modules that are standard library only. May import `core`.
"""
