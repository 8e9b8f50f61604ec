"""How long and how much memory: analytic formulas, and the measured Profile of a machine."""
