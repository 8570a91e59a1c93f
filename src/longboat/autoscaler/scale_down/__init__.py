"""Scale down: which nodes are idle or under-utilized, and which are cordoned, drained and deleted. Pure.

Doing it is `act`'s. May import `scale_up` (where pods would go, what was just bought), `purchase` (cheaper machines),
`model`; `fitting`.
"""
