"""Drawing in terminal cells: spans, bars, glyphs, and colours."""
