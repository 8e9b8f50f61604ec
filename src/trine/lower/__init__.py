"""From a segment of a Program to torch code."""
