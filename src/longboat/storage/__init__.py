"""What outlives a run: checkpoints, data imports, object stores, and the HTTP under them.

Who mounts or fetches what is the engines' and the launcher's. May import `core`, `bundles`.
"""
