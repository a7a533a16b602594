"""The stages put together: one run's pipeline, and the order of its iterations."""
