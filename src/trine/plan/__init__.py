"""The value everybody shares: mesh axes, layouts, stages, schedule, plan."""
