"""Acting inside pods: commands, files, words with the launcher, helper pods that mount a claim.

No decision about a run is made here. May import `creation`, `observe`, `manifests`, `kubeapi`, `bundles`,
`specs.fields`.
"""
