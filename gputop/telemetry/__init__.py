"""What the machine says: the stream of snapshots and its producers."""
