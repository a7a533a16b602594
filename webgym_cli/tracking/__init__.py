"""Uploads a run's metrics and sample trajectories to Weights & Biases; `metrics.jsonl` is the source of truth."""
