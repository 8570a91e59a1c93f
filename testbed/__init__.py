"""A real Kubernetes for the tests: built, started, broken on demand and removed again by one command.

A development tool: nothing under src/ imports it and the wheel does not carry it. It needs the standard library only.
"""
