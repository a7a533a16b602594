"""Data records: Task -> Trajectory (Steps, Outcome) -> Sample -> Checkpoint. Frozen pydantic models without I/O."""
