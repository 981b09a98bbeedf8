"""The terminal: input, output, and patches of Textual."""
