"""Data model of the stream: decoding, and the names and formats of values."""
