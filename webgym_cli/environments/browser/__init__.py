"""Chromium: discovery, processes, sessions, observations and actions."""
