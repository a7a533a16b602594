"""The agent: what the policy is told, how it is asked, and how its answer is read."""
