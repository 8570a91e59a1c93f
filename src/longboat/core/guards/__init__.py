"""Guards: values of secrets that must not be written, Ctrl-C that must not come in the middle,
types that two threads must not meet at once; expressions and digests that must not slow every start.

Not here: whose secrets they are, and what is written where. May import: nothing of Longboat.
"""
