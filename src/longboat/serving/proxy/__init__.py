"""The HTTP proxy in front of the replicas of this machine. It knows nothing of runs, versions or files.

May import nothing else of Longboat.
"""
