"""Our own trainer: reinforcement learning on a rollout's own tokens, and WebRL's actor-critic.

It runs in the train venv's interpreter, which has torch, transformers, pydantic and DeepSpeed but not webgym's own
requirements: of webgym it imports `errors`, `records/`, `util/` and the shared settings of `config/`. Nobody imports
it: `train/` starts it as `python -m webgym_cli.trainer`, with a `PYTHONPATH` that holds this package alone
(`venvs.locate.package_path`).

Only tokens that the policy generated are trained, so all functions work on these alone: K tokens in order, without
padding, prompts or observations (`experience.py`). Observations between two tokens receive no credit, don't
interrupt it, and need no mask. Failed episodes contribute no tokens.
"""
