"""The training loop of a run: pipeline stages and iteration schedule, synchronous and asynchronous."""
