"""Commands about runs that exist: ps, status, logs, explain, wait, stop, rm, exec, cp.

Starting one is in `jobs`. May import `input`, `output`, `sdk`, `engines`, `multicluster`.
"""
