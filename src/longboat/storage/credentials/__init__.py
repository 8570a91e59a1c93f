"""Where credentials of object stores come from, and how AWS requests are signed with them.

Environment, profiles, metadata services, OAuth tokens; no store is spoken to here. Standard library only: the launcher
carries it, but for `cloud_libraries`. May import `storage.http`, `storage.transfers`.
"""
