"""Serving of the policy with vLLM, including weight updates."""
