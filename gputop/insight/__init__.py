"""What is wrong, and why it is slow: checks that need no history, and rules over the history."""
