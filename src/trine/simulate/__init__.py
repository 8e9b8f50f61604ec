"""A clock over Programs: the trace, the bytes and the memory of a step that was not run."""
