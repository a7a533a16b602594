"""WebArena: tasks on self-hosted sites, scored by their own evaluation."""
