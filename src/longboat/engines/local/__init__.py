"""The embedded engine: runs as plain files and processes of this machine. No daemon, no database.

Here are the engine itself and its records; how a run gets there is in `submit`, whose turn it is in `queue`, its life
in `supervise`. May import `engines.lifecycle`, `engines.shared`, `bundles`, `storage`, `metrics`, `launcher.sampling`.
"""
