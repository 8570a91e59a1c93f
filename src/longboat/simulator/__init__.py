"""Replays a trace of jobs against the very same `decide()` as the live autoscaler, and against models of others.

No cluster and no clock but the trace's own. May import `autoscaler`, `fitting`, `core`.
"""
