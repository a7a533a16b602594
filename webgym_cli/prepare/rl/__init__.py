"""Policy-gradient batch of an iteration: stored trajectories as rows of the rollout's own tokens.

`rl_data/` has three files for the trainer (`trainer/`) and `dropped.json` for users. A line of `trajectories.jsonl` is
a trajectory of the batch with its group and reward; a null reward marks a masked one, whose reward or sampled tokens
are unknown. A line of `rows.jsonl` is one sequence for the model. Greedy and masked trajectories have no rows.
`rl.json`, the summary, is written last.

For `webrl` a row is an action with its next state, and the iteration's rows are followed by actions of earlier
successes: `replay_plan` finds them, `score` computes their log-probabilities under the policy, `replay` samples and
writes them.
"""
