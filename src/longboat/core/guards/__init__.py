"""Guards against what goes wrong at the edges: secrets in output, Ctrl-C in the middle of a write, msgspec in two
threads, regular expressions and OpenSSL that slow every start, a user's modules in the place of Python's.

Not here: whose secrets they are, and what is written where. May import: nothing of Longboat.
"""
