"""Transport of snapshots: child processes, ssh, several hosts as one stream, and history."""
