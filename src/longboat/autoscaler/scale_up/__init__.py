"""Scale up: who waits for machines, who fits on those that are there or coming, for whom more are bought. Pure.

Which machines are the cheapest is `purchase`'s. May import `purchase`, `model`; `fitting`.
"""
