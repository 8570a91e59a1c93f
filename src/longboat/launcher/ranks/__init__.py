"""The ranks of one node: starting them, their streams and heartbeats, why one failed, stacks of hung ones.

Nothing of other nodes. May import `node`.
"""
