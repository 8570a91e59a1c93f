"""Restart in place of a pod's launcher. Not when ranks are restarted: node 0 decides that (`gang.coordinator`).

May import `node`, `ranks`, `pod`.
"""
