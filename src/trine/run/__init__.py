"""Programs executed: lockstep, threads, processes."""
