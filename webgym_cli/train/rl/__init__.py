"""Reinforcement learning on a rollout's own tokens: advantages, objectives, log-probabilities in chunks, packing.

The modules run in the train venv's interpreter, which has torch and pydantic but not webgym. They import the standard
library, these two, one another and the shared settings (`config/rl.py`), and nothing else of webgym: the other packages
need libraries that this interpreter lacks. They are imported by their full names (`webgym_cli.train.rl.advantages`), so
that mypy checks them like the rest. `launch.py` imports the standard library only; it makes this one package importable
from its source folder, without the rest of site-packages, and then runs one of its modules. No environment variable is
involved, so every worker of `torchrun launch.py` can import the package.

Only tokens that the policy generated are trained, so all functions work on these alone: K tokens in order, without
padding, prompts or observations (`experience.py`). Observations between two tokens receive no credit, don't interrupt
it, and need no mask. Failed episodes contribute no tokens.
"""
