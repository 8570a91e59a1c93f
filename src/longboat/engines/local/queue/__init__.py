"""The queue of this machine: what it has, what jobs request, whose turn it is, and the locks of what a run holds.

Not whether a job can ever run here, which is `submit`'s preflight. May import `storage`, `engines.shared`,
`engines.lifecycle`.
"""
