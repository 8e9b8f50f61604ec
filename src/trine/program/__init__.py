"""Graph + Plan → one Program per engine, as data."""
