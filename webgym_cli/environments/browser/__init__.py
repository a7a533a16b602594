"""Chromium: found, started, shared, looked at and acted on."""
