"""Questions that are answered by calling tools; no browser."""
