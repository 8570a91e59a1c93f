"""Holds its GPU for some seconds, and says so."""

import sys
import time

print("holds", time.time(), flush=True)
time.sleep(float(sys.argv[1]))
