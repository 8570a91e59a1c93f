"""Google Cloud: requests to its REST interfaces with credentials of google-auth; machine types with prices.

Only `session` imports google-auth, when it is called.
"""
