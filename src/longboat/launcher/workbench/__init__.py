"""Programs that a person uses in a run: TensorBoard, JupyterLab, a shell, ssh. Started as the rank's own command, or
beside it by exec. Not here: how the user's machine reaches them (`longboat.workbench`). May import `node`.
"""
