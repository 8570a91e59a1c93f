"""Decisions of the autoscaler: `decide(snapshot, settings, now) -> Plan`, and explanations of a Plan. Pure: no I/O, no
clock.

May import `scale_down`, `scale_up`, `purchase`, `model`; `fitting`.
"""
