"""The nodes of an attempt among themselves: the channel, membership, the barrier, node 0's verdict.

Nothing of ranks' files. May import `node`, `ranks`, `vendored`.
"""
