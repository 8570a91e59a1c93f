"""The launcher: first process of every node of a run. Standard library only, Python >= 3.8, imports nothing of ours.

Engines start it as a program and do not import it. What it carries of other packages is listed in `vendored`.
"""
