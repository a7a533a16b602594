"""Training: LLaMA-Factory on the prepared dataset, and the next policy from it."""
