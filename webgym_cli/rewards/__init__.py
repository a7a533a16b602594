"""Scoring of trajectories that their environment can't score: a rubric judge and an outcome reward model."""
