"""One screen or tab a file."""
