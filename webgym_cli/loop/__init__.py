"""The training loop of a run: stages and iteration schedule, synchronous and asynchronous."""
