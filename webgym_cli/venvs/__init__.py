"""The serve and train virtual environments: vLLM and LLaMA-Factory need different versions of transformers."""
