"""Rewards: what a judge says of episodes that their environment can't score. It fails closed."""
