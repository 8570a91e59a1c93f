"""`decide(snapshot, settings, now) -> Plan` and its parts for growing; explanations of a Plan. Pure.

No I/O, no clock. May import `model`, `purchase`, `scale_down`, `fitting`.
"""
