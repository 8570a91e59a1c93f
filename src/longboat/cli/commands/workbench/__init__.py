"""Commands that open a workbench: board, notebook, shell, ssh-config. Each opens a run; see `longboat.workbench`.

Looking at runs is in `runs`. May import `runs`, `input`, `output`, `sdk`, `workbench`,
`engines`, `specs`, `web`.
"""
