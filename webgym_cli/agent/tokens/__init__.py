"""Token ids of prompts and replies."""
