"""AWS: requests through botocore, errors as messages, machine types with prices.

Only `session` imports botocore, when it is called.
"""
