"""Settings: one frozen model, resolved once."""
