"""What joins one run to another, the same on both engines: chains (`after`), runs that are run again, removal by age;
and notices of a run's end.

Not how an engine does it. May import `core`, `engines.engine`, `engines.shared`, `specs`.
"""
