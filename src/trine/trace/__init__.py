"""What happened or will happen: spans on a clock, and their export."""
