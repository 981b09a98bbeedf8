"""Transport of snapshots: child processes, ssh, merged hosts, and history."""
