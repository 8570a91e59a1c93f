"""Carries a Plan out: orders, cordons, drains, deletions, each checked again right before it is done.

Nothing is decided but to leave out. May import `observe`, `providers`, `model`; `fitting.model`, `kubeapi`.
"""
