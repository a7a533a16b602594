"""Networks, their inputs, and log-probabilities of tokens."""
