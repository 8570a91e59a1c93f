"""What a launcher stands on: the plan of its node, the event loop, processes and cgroups, JSON files, the environment.

Nothing of ranks or peers, no order of things (`node_launcher`). May import `location`.
"""
