"""Progress, latencies and heartbeats of a rollout."""
