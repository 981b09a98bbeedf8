"""Results of runs: history, comparison, and reports as text, HTML, CSV and TensorBoard files."""
