"""Values and pure rules that every package shares: jobs, layouts, resources, runs, plans, times, words, errors.

No I/O, no clock, no import of another Longboat package.
"""
