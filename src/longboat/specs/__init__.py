"""Text becomes values: job files with line numbers, flags, importers of other tools. May import core."""
