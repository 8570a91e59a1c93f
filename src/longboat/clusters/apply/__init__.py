"""Carries a plan out on hosts, and takes it back: steps with their order, tokens, the journal's undo, the audit.

Decisions are `plan`'s. May import all of `clusters` but the commands `up` and `down`, and `core`.
"""
