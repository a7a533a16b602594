"""The recording gateway: an OpenAI-compatible endpoint before the policy, for agents that are not webgym's."""
