"""One node of a run: its plan, its event loop, its processes and cgroup, the order of its life.

Not the ranks' streams (`ranks`), not the peers (`gang`), not what only pods need (`pod`). May import `location`.
"""
