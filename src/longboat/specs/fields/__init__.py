"""The table of all fields of a job file, and the kinds of values that they take.

Not their defaults and contradictions (`specs.assembly`). May import `core`, `specs.yaml`.
"""
