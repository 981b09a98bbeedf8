"""Metrics for Prometheus: names, series, and the HTTP server."""
