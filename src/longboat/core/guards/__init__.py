"""Guards: values of secrets that must not be written, Ctrl-C that must not come in the middle.

Not here: whose secrets they are, and what is written where. May import: nothing of Longboat.
"""
