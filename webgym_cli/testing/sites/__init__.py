"""Seeded local web sites with server-side state: the offline stand-in for the open web."""
