"""What the speed and the memory of `webgym` are measured with. Run one by `python -m benchmarks.rollout`."""
