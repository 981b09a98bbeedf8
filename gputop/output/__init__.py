"""The stream for other eyes than the dashboard's."""
