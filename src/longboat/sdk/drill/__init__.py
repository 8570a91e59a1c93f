"""Recovery drills: a run is disturbed on purpose, and what it does then is compared with an undisturbed one.

`kills` reads what is to be killed, `trace` the steps of a run, `judge` decides, `conduct` does it. What recovers a run
is in the engines. May import `engines`, `core`, `metrics`, `storage.inventory`.
"""
