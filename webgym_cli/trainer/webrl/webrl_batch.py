"""WebRL: the actor's training targets of a batch's actions, and the loss terms of actor and critic."""

from __future__ import annotations

import torch

import webgym_cli.trainer.webrl.webrl_losses as webrl
from webgym_cli.config.rl import WebRLSettings
from webgym_cli.trainer.data import Batch, TrainRow
from webgym_cli.trainer.engine.batching import LossTerm
from webgym_cli.trainer.ppo.batch_targets import BatchTargets, batch_metrics, summary_stats
from webgym_cli.trainer.webrl.webrl_states import require_transition


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
        advantages = webrl.paper_advantage(success * last, value, after, success, options.lam)
    else:
        returns = webrl.monte_carlo(success, steps_left(batch.rows), options.gamma)
        advantages = webrl.released_advantage(value, next_value, success, returns)
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
    losses = lost * webrl.critic_loss(torch.zeros_like(lost), *heads)
    losses = losses + won * webrl.critic_loss(torch.ones_like(won), *heads)
    right = torch.where(webrl.success_probability(*heads) >= 0.5, won, lost)
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
    sums, reference = webrl.action_sums(output[0], action, len(lengths)), targets["reference"]
    if options.objective == "paper":
        losses = webrl.paper_loss(sums, reference, targets["advantages"], options.beta)
    else:
        losses = webrl.released_loss(sums, reference, lengths, targets["advantages"])
    return LossTerm(
        losses.sum() / actions,
        {
            "actor/log_ratio": (sums - reference).detach().sum() / actions,
            "actor/entropy": output[1].detach().sum() / tokens,
        },
    )
