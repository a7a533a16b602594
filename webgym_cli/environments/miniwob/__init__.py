"""MiniWoB++: generated one-page tasks, scored by the page itself."""
