"""`longboat sweep`: starting a sweep, and what is done with one that is there. What a sweep does is in `sweeps`.

May import `cli.input`, `cli.output`, `sweeps`, `sdk`, `engines`.
"""
