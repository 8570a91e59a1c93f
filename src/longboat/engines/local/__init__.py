"""The embedded engine: runs as plain files and processes of this machine. No daemon, no database."""
