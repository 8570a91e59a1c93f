"""Requests to clouds and their machine types, one folder for each cloud: what `clusters` and `autoscaler` both need.

Not here: what is asked and why. May import `core`; the clouds' own libraries are loaded by the first request.
"""
