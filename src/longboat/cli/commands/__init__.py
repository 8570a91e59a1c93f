"""Commands of users, one module for each, named after it; in folders by what they are about.

Parsing and showing; what a command does is in `sdk` and engines. Commands for those who run a cluster: `cli.admin`.
"""
