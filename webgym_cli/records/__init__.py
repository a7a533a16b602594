"""The vocabulary: Task -> Trajectory (Steps, Outcome) -> Sample -> Checkpoint. Frozen models, no I/O."""
