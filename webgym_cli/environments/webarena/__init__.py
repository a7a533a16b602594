"""WebArena: tasks on self-hosted sites, scored by the tasks' own evaluations."""
