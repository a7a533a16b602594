"""Serving: the vLLM server that the policy runs on, and how it gets new weights."""
