"""Advantages, objectives and the trainer of policy gradients."""
