"""Pods, nodes, volumes and quantities as values, made from the API's JSON. Pure.

Who fits where is decided one folder up. May import `core`.
"""
