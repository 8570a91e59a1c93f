"""The dashboard's server: engines observed once, shown to any number of browsers. The pages are files in `static`.

Not here: what a run is and why it waits (engines), and how it looks (static). Needs the extra `ui`: nothing outside of
this package imports starlette or uvicorn. May import `engines`, `kubeapi`, `metrics`, `multicluster`, `sdk`, `specs`,
`workbench`.
"""
