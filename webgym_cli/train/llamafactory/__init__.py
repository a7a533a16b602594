"""Supervised fine-tuning through LLaMA-Factory."""
