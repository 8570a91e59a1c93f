"""`longboat serve` and its commands: parsed and shown. What they do is in `serving`.

May import `cli.input`, `cli.output`, `engines`, `sdk`, `serving`, `specs`, `storage.inventory`, `workbench`.
"""
