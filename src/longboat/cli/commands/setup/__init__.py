"""Commands that prepare this machine and its settings: doctor, secret, config, volume, completion.

What is put into a cluster is in `cli.admin`.
May import `input`, `output`, `sdk`, `clouds`, `clusters`, `doctor`, `engines`, `kubeapi`, `specs`,
`storage`, `storage.imported`, `cli.commands.jobs`.
"""
