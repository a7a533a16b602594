"""Templates of prompts: plain, with memory, WebRL's, the reward model's."""
