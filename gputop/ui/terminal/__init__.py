"""Terminal input and output, and patches of Textual."""
