"""Processes, DeepSpeed or plain torch, checkpoints, and the steps of the optimizer."""
