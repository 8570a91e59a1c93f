"""Task files of other tools, translated into job files, with a list of what could not be translated. Pure.

Our own job file is read by `specs.read`. May import `specs.yaml`, `specs.fields`.
"""
