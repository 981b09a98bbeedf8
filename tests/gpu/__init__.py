"""What needs a real GPU; skipped elsewhere."""
