"""The run's metrics and sample trajectories in Weights & Biases; `metrics.jsonl` stays the truth."""
