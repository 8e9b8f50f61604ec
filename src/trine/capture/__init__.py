"""From a model specification to a module, its example inputs and its graph."""
