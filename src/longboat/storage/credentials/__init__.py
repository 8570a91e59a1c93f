"""Where credentials of object stores come from: environment, profiles, metadata services, OAuth tokens.

No store is spoken to here. Standard library only: the launcher carries it. May import `storage.http`.
"""
