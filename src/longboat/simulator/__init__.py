"""Replays a trace of jobs against the very same `decide()` as the live autoscaler, and against models of others."""
