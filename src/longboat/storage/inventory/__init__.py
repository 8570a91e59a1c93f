"""Checkpoints of a run, one by one: list, fetch, remove, promote, verify; in a folder, a pod or an object store.

What makes a checkpoint complete is known to `storage.checkpoints`, `storage.fences` and `storage.checkpoint_mirror`;
writing them is the trainer's work. May import `core`, `bundles` and the rest of `storage`.
"""
