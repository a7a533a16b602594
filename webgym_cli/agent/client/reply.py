"""Replies of policies. Separate from the clients, so that experts don't import them."""

from __future__ import annotations

from dataclasses import dataclass

from webgym_cli.records.trajectory import Generation

# Counters of each server by its address. Totals: `requests`, `failures` that were the server's fault, `opened` (its
# outages), `seconds` (duration of all requests). Current values: `outstanding` requests, `open` (1 while it is out).
ServerCounters = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class PolicyReply:
    """Reply of a policy."""

    text: str
    """The whole response. Reasoning that the server's parser split off is put back in front, between `<think>` and
    `</think>`. The sampled token ids need not begin with `<think>`: the chat template may have opened the reasoning
    in the prompt, and `prepare` allows for that."""
    generation: Generation
