"""Rollouts: plan (owed = wanted - on disk), then execute (bounded concurrency, no barriers)."""
