"""The batch of an iteration for policy-gradient training: stored trajectories as rows of the very tokens of a rollout.

`rl_data/` has three files, which the trainer reads (`train/rl/`), and `dropped.json` for people. One line of
`trajectories.jsonl` is a trajectory of the batch, with its group and its reward; null: it is masked, for there is none,
or what it was sampled from can't be told. One line of `rows.jsonl` is a sequence for the model. Greedy and masked
trajectories have no rows. `rl.json` is written last and says what the batch is of.

For `webrl` a row is an action with the state that came of it, and after the iteration's own come actions of earlier
successes: `replay_plan` finds them, `weigh` has the policy score them, `replay` draws of them and writes.
"""
