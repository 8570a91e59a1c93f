"""Commands about checkpoints: `checkpoint`, and `drill`, which shows that a run recovers from them.

They parse and show; what they do is in `storage.inventory` and `sdk.drill`. May import `sdk`,
`input`, `output`, `commands.runs`, `engines`, `specs`, `storage.inventory`.
"""
