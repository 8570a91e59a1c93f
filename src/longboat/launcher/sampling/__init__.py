"""Sampling of a node while its ranks run: processor, memory, disk, network, GPUs, the trainers' numbers, in one file.

Nothing here ends or delays a rank: it is done in a thread of its own, and what cannot be read is left out.
May import `node`, `ranks`.
"""
