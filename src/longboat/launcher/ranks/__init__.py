"""The ranks of one node: the state its parts share, starting ranks, streams, heartbeats, why one failed, stacks.

Nothing of other nodes. May import `node`, `vendored`; of `starters` only what torchrun's environment needs, of `pod`
only types.
"""
