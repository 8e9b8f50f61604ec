"""What the engines are: engines, links, tiers, shared resources; TOML in and out; presets with their sources."""
