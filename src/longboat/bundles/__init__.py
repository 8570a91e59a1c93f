"""The user's code as a content-addressed snapshot: what belongs to it, its hash, packing and safe unpacking.

Also files and folders written so that nothing is lost or overwritten. Nothing of runs. May import `core`.
"""
