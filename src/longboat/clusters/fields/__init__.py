"""The table of the cluster file's fields and the rules of its texts: what may be written, and what it becomes.

Which fields fit together, and reading the file, is `cluster_file`'s. May import `specs`, `fitting`, `clusters`.
"""
