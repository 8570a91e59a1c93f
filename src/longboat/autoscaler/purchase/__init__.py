"""The cheapest machines for a demand: what pools can provide, and bin packing over all of their offers. Pure.

Who is served first is `scale_up`'s. May import `model`; `fitting`.
"""
