"""The application: start, keys, help, header, and the command palette."""
