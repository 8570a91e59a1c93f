"""Imports that are on a volume: their markers, read and checked here or in a pod, and news of their sources.

Not the import itself, which is `data`. May import `core`, `storage`.
"""
