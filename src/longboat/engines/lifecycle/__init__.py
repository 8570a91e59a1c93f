"""What joins one run to another, the same on both engines: chains (`after`), runs that are run again, removal by age;
notices of a run's end, and the environment a run was submitted in.

Not how an engine does it. May import `core`, `engines.engine`, `engines.shared`, `specs`.
"""
