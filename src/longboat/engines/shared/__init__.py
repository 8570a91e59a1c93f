"""What every engine needs: home folder, code snapshot, secrets, files, log files, retry policy, explanations.

Nothing of processes or of a cluster. May import `core`, `bundles`, `storage`, the promises in
`engine.py`; imports no engine.
"""
