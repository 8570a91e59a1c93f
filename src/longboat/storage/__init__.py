"""Volumes, data import, checkpoints: what outlives a run.

Object stores are in `stores`, their credentials in `credentials`. May import `bundles`, `core`.
"""
