"""WebRL (Qi et al. 2024, arXiv 2411.02337): a batch's training targets, and the losses of actor and critic.

The objectives are the paper's and those of its released code, which differ. Their unit is the action: one step of an
episode, n of them in a batch. Log-probs are sums over an action's tokens. Losses are given an action each: what is
trained is their mean, whichever way the actions are divided. States are prompts, valued by the critic from the hidden
state of their last token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch.nn import functional

from webgym_cli.config.rl import WebRLSettings
from webgym_cli.trainer.data import Batch, Picture, TrainRow, Transition
from webgym_cli.trainer.engine.batching import LossTerm
from webgym_cli.trainer.options import TrainingError
from webgym_cli.trainer.ppo.batch_targets import BatchTargets, batch_metrics, summary_stats


def successes(batch: Batch) -> torch.Tensor:
    """Return [n] bool: whether the episode of each action succeeded."""
    return batch.trajectories.success[[row.trajectory for row in batch.rows]]


def steps_left(rows: tuple[TrainRow, ...]) -> torch.Tensor:
    """Return [n] float32: the steps from each on to its episode's last, itself included, as far as the batch has them.

    The batch has only some steps of replayed episodes. That doesn't change which actions the released objective trains
    on: a success has A ≥ 0 from one remaining step on.
    """
    ends: dict[int, int] = {}
    for row in rows:
        ends[row.trajectory] = max(row.step, ends.get(row.trajectory, 0))
    return torch.tensor([float(ends[row.trajectory] - row.step + 1) for row in rows])


def compute_targets(
    batch: Batch, options: WebRLSettings, reference: torch.Tensor, value: torch.Tensor, next_value: torch.Tensor
) -> BatchTargets:
    """Return the targets of n actions, all [n] float32 on the CPU: `reference` and `advantages`.

    `reference`: their summed log-probs under the actor as the phase began; `value`, `next_value`: V(s) and V(s').
    """
    success = successes(batch).float()
    transitions = [require_transition(row) for row in batch.rows]
    last = torch.tensor([transition.last for transition in transitions])
    if options.objective == "paper":
        after = next_value.masked_fill(last, 0.0)
        advantages = paper_advantage(success * last, value, after, success, options.lam)
    else:
        returns = monte_carlo(success, steps_left(batch.rows), options.gamma)
        advantages = released_advantage(value, next_value, success, returns)
    metrics = {
        **batch_metrics(batch),
        **summary_stats("critic/advantages", advantages),
        "critic/advantages/std": float(advantages.double().std(correction=0)),
        "critic/advantages/positive": float((advantages > 0).double().mean()),
        **summary_stats("critic/values", value),
        "actor/reference_log_prob": float(reference.double().sum() / batch.offsets[-1].double()),
        "data/replayed": sum(transition.replayed for transition in transitions) / len(transitions),
    }
    ranked = auc(value, success.bool())
    if ranked is not None:
        metrics["critic/auc"] = ranked
    tensors = {"reference": reference, "advantages": advantages}
    return BatchTargets(tensors, metrics, {"webrl": options.model_dump(mode="json")})


def auc(value: torch.Tensor, success: torch.Tensor) -> float | None:
    """Return how often a success has the greater value than a failure, ties counting half; None without both."""
    levels, place = torch.unique(value.double(), return_inverse=True)
    won = torch.zeros(len(levels), dtype=torch.float64).index_add(0, place, success.double())
    lost = torch.zeros(len(levels), dtype=torch.float64).index_add(0, place, (~success).double())
    pairs = won.sum() * lost.sum()
    if not pairs:
        return None
    return float((won * (lost.cumsum(0) - lost / 2)).sum() / pairs)


def critic_loss_term(logits: torch.Tensor, visits: torch.Tensor, totals: tuple[int, int]) -> LossTerm:
    """Return a call's share of the critic's loss: the sum of all cross-entropies, over the mini-batch's actions.

    `logits` [k, heads, 2] are those of k states, met `visits` [k, 2] times in a failure and in a success; `totals`:
    how often the mini-batch met a state, and its actions. The accuracy is that of the values before this step.
    """
    met, actions = totals
    heads = logits.unbind(1)
    lost, won = visits.unbind(1)
    losses = lost * critic_loss(torch.zeros_like(lost), *heads)
    losses = losses + won * critic_loss(torch.ones_like(won), *heads)
    right = torch.where(success_probability(*heads) >= 0.5, won, lost)
    return LossTerm(losses.sum() / actions, {"critic/accuracy": right.detach().sum() / met})


def actor_loss_term(
    output: tuple[torch.Tensor, torch.Tensor],
    lengths: torch.Tensor,
    targets: dict[str, torch.Tensor],
    options: WebRLSettings,
    totals: tuple[int, int],
) -> LossTerm:
    """Return a call's share of the actor's loss, the mean over a mini-batch's actions.

    `output`: log-probs and entropies [k] of the tokens of its actions, which have `lengths` [m] tokens; `targets` are
    those of the m actions; `totals`: tokens and actions of the mini-batch.
    """
    tokens, actions = totals
    action = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)
    sums, reference = action_sums(output[0], action, len(lengths)), targets["reference"]
    if options.objective == "paper":
        losses = paper_loss(sums, reference, targets["advantages"], options.beta)
    else:
        losses = released_loss(sums, reference, lengths, targets["advantages"])
    return LossTerm(
        losses.sum() / actions,
        {
            "actor/log_ratio": (sums - reference).detach().sum() / actions,
            "actor/entropy": output[1].detach().sum() / tokens,
        },
    )


def action_sums(values: torch.Tensor, action: torch.Tensor, count: int) -> torch.Tensor:
    """Return [n]: the sums of [K] token values over the actions; `action` [K] is below `count` (n)."""
    return values.new_zeros(count).index_add(0, action, values)


def success_probability(*heads: torch.Tensor) -> torch.Tensor:
    """Return [n]: the critic's V, the least probability of success (class 1) of its heads' logits [n, 2]."""
    return torch.stack([head.float().softmax(-1)[:, 1] for head in heads]).amin(0)


def critic_loss(success: torch.Tensor, *heads: torch.Tensor) -> torch.Tensor:
    """Return [n]: the sum over the heads of the cross-entropy of their logits [n, 2] with `success` [n] (eq. 8)."""
    target = success.long()
    losses = [functional.cross_entropy(head.float(), target, reduction="none") for head in heads]
    return torch.stack(losses).sum(0)


def paper_advantage(
    reward: torch.Tensor, value: torch.Tensor, next_value: torch.Tensor, final: torch.Tensor, lam: float = 0.5
) -> torch.Tensor:
    """Return [n]: lam · (r + V(s') - V(s)) + (1 - lam) · (r_T - V(s)) (eq. 9).

    `reward` [n] is the step's own: 0 before the last. `next_value` [n] is 0 after the last. `final` [n] is the
    episode's outcome r_T.
    """
    return lam * (reward + next_value - value) + (1 - lam) * (final - value)


def paper_loss(
    log_probs: torch.Tensor, reference: torch.Tensor, advantage: torch.Tensor, beta: float = 1.0
) -> torch.Tensor:
    """Return [n]: (beta · log(policy / reference) - A)² (eq. 6); all [n], logs summed.

    For beta = 0, which leaves nothing to learn there, the limit of its gradient over 2 · beta: that of -A · log-prob.
    """
    if beta == 0:
        return -advantage.detach() * log_probs
    return (beta * (log_probs - reference) - advantage.detach()).square()


def monte_carlo(reward: torch.Tensor, left: torch.Tensor, gamma: float = 0.9) -> torch.Tensor:
    """Return [n]: the discounted sum of a reward that each of the `left` [n] steps brings, this one included."""
    if gamma == 1:
        return reward * left
    return reward * (1 - gamma**left) / (1 - gamma)


def released_advantage(
    value: torch.Tensor, next_value: torch.Tensor, reward: torch.Tensor, monte_carlo: torch.Tensor
) -> torch.Tensor:
    """Return [n]: clip(V(s') - V(s) - 0.05 + reward + Monte Carlo return, ±1), as the released code has it.

    There `reward` is the episode's on each of its steps, and the return sums those.
    """
    return (next_value - value - 0.05 + reward + monte_carlo).clamp(-1, 1)


def released_loss(
    log_probs: torch.Tensor, reference: torch.Tensor, lengths: torch.Tensor, advantage: torch.Tensor
) -> torch.Tensor:
    """Return [n]: the released code's actor loss; all [n], logs summed, `lengths` the actions' tokens.

    Only actions with A ≥ 0 count, all with the target 1: SmoothL1(b · x, 1) / b, where x is the log-ratio a token and
    b the smaller of 1 / |x| and 5 (1 where the reference gives the action's tokens a geometric mean probability below
    0.8), without gradient. The others are 0, and count in the mean. The released code divides by the tokens of all
    positive actions of a micro-batch, and ran with one action in each: this is that case.
    """
    chosen = (advantage >= 0).to(log_probs.dtype)
    ratio = (log_probs - reference) / lengths
    confident = torch.exp(reference / lengths) >= 0.8
    wanted = torch.where(confident, 5.0, 1.0)
    beta = torch.minimum(wanted, ratio.abs().reciprocal()).detach()
    target = torch.ones_like(ratio)
    return functional.smooth_l1_loss(beta * ratio, target, reduction="none") / beta * chosen


AGAIN = "make the batch again with webgym prepare and train.algorithm=webrl"


@dataclass(frozen=True, slots=True)
class States:
    """S deduplicated states: the state after a step is mostly the one before the next step."""

    rows: tuple[TrainRow, ...]
    """[S]: each a prompt plus one marked token, to which no other token attends; the critic reads before it."""
    before: torch.Tensor
    """[n] long: index of the state before each action."""
    after: torch.Tensor
    """[n] long: the number of the state that it led to; where an episode ended and no such state is asked for, of its
    own."""

    def count_visits(self, actions: Sequence[int], success: torch.Tensor, *, after: bool) -> torch.Tensor:
        """Return [S, 2] float: each state's number of visits by these actions in failures, and in successes.

        `success` [n] bool. `after`: also count the states after the actions.
        """
        chosen = torch.tensor(list(actions))
        met = [states[chosen] for states in (self.before, self.after)[: 1 + after]]
        counts = torch.zeros(len(self.rows), 2)
        for states in met:
            counts.index_put_((states, success[chosen].long()), torch.ones(len(chosen)), accumulate=True)
        return counts


def require_transition(row: TrainRow) -> Transition:
    """Return a row's transition. Raises `TrainingError` for a batch that was not prepared for `webrl`."""
    if row.transition is None:
        raise TrainingError(f"{row.place}: doesn't say which state it led to (next_prompt): {AGAIN}")
    first = int(row.mask.int().argmax())
    if not bool(row.mask[first:].all()):
        raise TrainingError(f"{row.place}: holds several steps, an action is wanted: {AGAIN}")
    return row.transition


def collect_states(batch: Batch, *, ends: bool) -> States:
    """Return the states of a batch, with `ends` including those after the last steps.

    Raises `TrainingError` for a batch that was not prepared for `webrl`.
    """
    row_of_state: dict[tuple[bytes, tuple[Picture, ...]], int] = {}
    rows: list[TrainRow] = []

    def number(row: TrainRow, prompt: torch.Tensor, images: tuple[Picture, ...]) -> int:
        key = prompt.numpy().tobytes(), images
        if key not in row_of_state:
            row_of_state[key] = len(rows)
            rows.append(replace(state_row(prompt, row.place, images), trajectory=row.trajectory, step=row.step))
        return row_of_state[key]

    before, after = [], []
    for row in batch.rows:
        transition = require_transition(row)
        before.append(number(row, row.input_ids[: int(row.mask.int().argmax())], row.images))
        if transition.last and not ends:
            after.append(before[-1])
        else:
            after.append(number(row, transition.next_prompt, transition.next_images))
    return States(tuple(rows), torch.tensor(before), torch.tensor(after))


def state_row(prompt: torch.Tensor, place: str, images: tuple[Picture, ...]) -> TrainRow:
    """Return a prompt as a row with one marked token after it, to which no other token attends."""
    mask = torch.zeros(len(prompt) + 1, dtype=torch.bool)
    mask[-1] = True
    return TrainRow(
        input_ids=torch.cat([prompt, prompt[-1:]]),
        mask=mask,
        log_probs=torch.zeros(1),
        trajectory=0,
        step=0,
        images=images,
        place=place,
    )
