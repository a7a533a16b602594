"""The role environments: vLLM and LLaMA-Factory need different transformers, so each has a Python of its own."""
