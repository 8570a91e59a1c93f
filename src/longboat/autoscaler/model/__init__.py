"""Values of the autoscaler: snapshot, plan, turn, pools file, machines, backoff, settings of the loop. Pure.

No decisions, and no I/O but reading files that a person names. May import `core`, `specs`, `fitting`.
"""
