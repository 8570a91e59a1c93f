"""Azure: requests to its resource manager with credentials of azure-identity; machine types with prices.

Only `session` imports azure-identity, when it is called.
"""
