"""A rubric judge (an OpenAI-compatible vision-language model) that scores stored trajectories."""
