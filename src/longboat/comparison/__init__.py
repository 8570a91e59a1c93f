"""Comparison of runs: what differs in their jobs and code, and what came of it; as a value and as a page.

How it is shown in a terminal is in `cli`. May import `engines`, `metrics`, `bundles`, `specs`, `core`.
"""
