"""The only code that talks to a Kubernetes API server. It knows HTTP, kinds and errors, and nothing of runs."""
