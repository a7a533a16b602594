"""Reinforcement learning on a rollout's own tokens: advantages, objectives, log-probabilities in chunks, packing.

The files here run in the train role's interpreter, where torch and pydantic are and webgym isn't installed. They import
the standard library, these two, one another, and the settings that they share with the run (`config/rl.py`), nothing
else of webgym: its other rooms need libraries that this interpreter lacks. Yet they are imported by their true names
(`webgym_cli.train.rl.advantages`), so that the types are checked like everyone's: `launch.py`, which needs nothing,
first lets this one package be found at its place, without its neighbours in site-packages, and then runs a module of
this room. No variable of the environment is involved, so each worker of a `torchrun` that is given `launch.py` finds
its way by itself.

One convention holds throughout. Only tokens that the policy produced are trained, so the functions work on those alone:
K tokens, one after another, without padding, prompts or observations (`experience.py`). What stands between two of them
can't get credit, can't interrupt it, and needs no mask. Failed episodes have no tokens here at all.
"""
