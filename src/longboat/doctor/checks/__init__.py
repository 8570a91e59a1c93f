"""Checks of the doctor: small pure functions from what was seen to a judgement, a module per layer.

Nothing here asks anybody anything.
May import `doctor.facts`, `doctor.findings`, `doctor.probes`, `clusters.observe`, `engines`, `fitting`, `core`.
"""
