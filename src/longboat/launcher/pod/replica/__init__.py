"""Programs in the pod of a served replica: its startup probe, and which checkpoints its run has by now.

Not what serves: that is the user's command, which the launcher starts as any other rank. May import `launcher.node`.
"""
