"""Values and pure rules that every package shares: jobs, layouts, resources, runs, plans, errors.

No I/O, no clock, no import of another Longboat package.
"""
