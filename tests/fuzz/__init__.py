"""Input that nobody meant: made by hypothesis, and by a fuzzer that is guided by coverage."""
