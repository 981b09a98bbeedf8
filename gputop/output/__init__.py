"""Output of the stream outside the dashboard: pages, JSON, CSV and metrics."""
