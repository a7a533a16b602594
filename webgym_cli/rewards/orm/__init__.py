"""Outcome reward model (ORM) that scores stored trajectories."""
