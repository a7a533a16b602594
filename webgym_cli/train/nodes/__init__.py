"""Trainings on several nodes."""
