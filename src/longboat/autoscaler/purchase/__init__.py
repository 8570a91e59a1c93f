"""The cheapest machines for a demand: bin packing over the offers of all pools. Pure.

Who is served first is `decide`'s. May import `model`, `fitting`.
"""
