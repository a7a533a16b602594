"""The agent: prompts, requests to the policy and parsing of its responses."""
