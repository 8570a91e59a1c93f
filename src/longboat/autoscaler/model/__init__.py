"""Values of the autoscaler: snapshot, plan, pools file, machines, back-off, settings of the loop. Pure.

No decisions and no I/O. May import `core`, `specs`, `fitting`.
"""
