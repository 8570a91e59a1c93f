"""Software bundles: all that `up` installs on hosts, in one file, so that neither they nor this machine need a network.

Making one, and reading one with every checksum compared. Not here: what is done with it on hosts (`plan`).
May import `clusters.spec`, `clusters.plan`, `clusters.observe`, `clusters.hosts`, `clusters.addons`, `bundles`,
`engines.shared`, `storage`, `core`.
"""
