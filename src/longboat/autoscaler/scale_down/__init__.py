"""Which nodes are idle or under-utilized, and which are cordoned, drained and deleted. Pure.

Doing it is `act`'s. May import `model`, `fitting`, and placement of `decide`.
"""
