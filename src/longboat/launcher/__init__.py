"""The launcher: first process of every node of a run. Standard library only, Python >= 3.8, imports nothing of ours."""
