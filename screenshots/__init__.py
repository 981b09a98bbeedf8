"""Pictures of the running app, and the scripts that make them."""
