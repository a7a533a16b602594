"""Helpers without product knowledge: files, URLs, images, plugins."""
