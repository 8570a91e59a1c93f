"""Commands that show figures of runs: curves, and what uses which GPU.

Not what a run is and how it ended: that is in `runs`. May import `commands.runs`, `input`, `output`,
`sdk`, `engines`, `metrics`, `comparison`, `multicluster`.
"""
