"""Sites that need a login or a reset: accounts, sessions, scheduling, for every environment with pages."""
