"""Tab of the dashboard that shows a training."""
