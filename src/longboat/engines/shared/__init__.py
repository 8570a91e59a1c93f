"""What every engine needs: the home folder, secrets, atomic files, log files, retry policy, summaries, explanations.

Nothing of processes or of a cluster. May import `core`, `bundles`, `specs`, `storage`; imports no engine.
"""
