"""The life of a run on this machine: the detached supervisor, its launchers, attempts and their outcome.

Not the ranks themselves, which the launcher starts. May import `queue`, `containers`, `engines.lifecycle`,
`engines.shared`, `bundles`, `metrics`, `storage`, the files of the engine and its recovery, and the launcher's reading
of /proc (`launcher.node`).
"""
