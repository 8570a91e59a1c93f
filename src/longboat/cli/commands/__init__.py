"""One module for each command of users, named after it.

Parsing and showing; what a command does is in `sdk` and engines. May import `input`, `output`, `sdk`, `engines`,
`specs`.
"""
