"""Results of runs: stored, compared, and shown as text, HTML, CSV and for TensorBoard."""
