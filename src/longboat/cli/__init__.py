"""The command line: parsing and showing. No decision is made here.

What commands do is in `sdk`, the engines, the autoscaler and the simulator. May import `sdk`, `engines`.
"""
