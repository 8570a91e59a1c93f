"""Who makes and deletes machines: the interface (`provider`) and one module for each kind."""
