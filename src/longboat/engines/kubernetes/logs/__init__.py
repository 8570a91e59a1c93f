"""The logs of a run: read from pods, from nodes' files and from storage, merged and followed.

What writes them is the launcher. May import `exec`, `observe`, `manifests`, `kubeapi`, `engines.shared`, `bundles`,
`metrics`.
"""
