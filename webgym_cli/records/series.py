"""Series of results: whose success rate an episode belongs to.

Results of the run's policy, of an expert and of servers that webgym did not start are never averaged together.
"""

from __future__ import annotations

# `policy` of an expert's episodes, and the series that they form: no measure of a policy.
EXPERT, DEMONSTRATIONS = "oracle", "demonstrations"
# Values of `rollout.policy` other than base URLs: the environment's expert, webgym's own servers.
ORACLE, VLLM = EXPERT, "vllm"
# Regular expression of the ids of imported episodes, which end with digits of a digest.
IMPORTED_ID = "-[a-z]+-([0-9a-f]{16})$"
# Only the names of servers' policies contain one; those of checkpoints, folders and hub models don't.
_SERVED = (" at http://", " at https://")


def name_served(model: str, addresses: str) -> str:
    """Return the policy's name of a model on servers that webgym did not start."""
    return f"{model} at {addresses}"


def is_served_elsewhere(policy: str) -> bool:
    """Whether a policy is that of servers that webgym did not start, not the run's."""
    return any(sign in policy for sign in _SERVED)


def name_version(policy: str, version: int) -> str:
    """Return the version of the run's policy that results belong to; a server's policy has none, but a name."""
    return policy if is_served_elsewhere(policy) else str(version)


def name_series(policy: str, split: str) -> str:
    """Return the series of an episode: its split, `demonstrations`, or its split and the server's policy."""
    if policy == EXPERT:
        return DEMONSTRATIONS
    return f"{split} of {policy}" if is_served_elsewhere(policy) else split
