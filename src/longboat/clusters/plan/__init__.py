"""Decides what is to be done on which host, from the cluster file and facts: steps with their scripts. Pure.

Also the text of what is written onto hosts: configurations, units, scripts. May import `clusters.spec`, the values of
`clusters.observe`, `specs.fields`, `core`. Reaching hosts is `apply`'s.
"""
