"""What of a folder belongs to a bundle: git, ignore files, size limits, files that look like secrets; reading it.

Storing and unpacking are one folder up. May import `core`, and `store`, `manifests`, `trees`, `disk` of `bundles`.
"""
