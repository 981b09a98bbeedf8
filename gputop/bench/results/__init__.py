"""Results of runs: history, comparison, and reports as text, HTML and CSV."""
