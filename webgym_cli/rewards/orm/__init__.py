"""An outcome reward model that scores stored trajectories."""
