"""Text becomes values: job files with line numbers, flags, the JSON schema, importers of other tools.

What a value means for a run is not decided here. May import `core`.
"""
