"""Settings `rollout`: the execution of episodes. The text under a field is its help."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from webgym_cli.config.endpoint import EndpointSettings, RequestSettings
from webgym_cli.config.limits import MAX_CHAINS, MAX_EPISODES
from webgym_cli.config.section import ConfigSection


class MaxSteps(ConfigSection):
    """Step limits by difficulty band."""

    easy: int = Field(default=10, ge=1)
    """Step limit of a task with 1 to 3 facts."""
    medium: int = Field(default=20, ge=1)
    """Step limit of a task with 4 to 6 facts."""
    hard: int = Field(default=30, ge=1)
    """Step limit of a task with 7 or more facts."""


class TestSampling(ConfigSection):
    """The sampling parameters of test episodes; null: as in training episodes."""

    temperature: float | None = Field(default=None, ge=0)
    """Sampling temperature; 0: greedy decoding; null: `policy_config.temperature`."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Nucleus sampling; null: `policy_config.top_p`."""
    top_k: int | None = Field(default=None, ge=-1)
    """Number of most likely tokens that are sampled from; -1 or 0: all; null: `policy_config.top_k`."""


class PolicyRequestSettings(RequestSettings):
    """The requests to the policy servers."""

    timeout: float = Field(default=240.0, gt=0)
    """Time limit of one policy request, in seconds."""
    retries: int = Field(default=2, ge=0)
    """Maximum number of retries of a failed policy request; with several servers a retry goes to another one."""


class RolloutSettings(ConfigSection):
    """The execution of episodes."""

    policy: str = "vllm"
    """Policy: `vllm` (the run's own server with its current model), `oracle` (the environment's expert), or OpenAI base
    URLs separated by commas, which share the requests."""
    agent: str = ""
    """Command of an agent that acts in place of webgym's own, one process an episode, by the policy behind webgym's
    gateway (`docs/agents.md`); empty: none. Experts act themselves."""
    episodes: int = Field(default=1024, ge=1, le=MAX_EPISODES)
    """Training episodes per iteration, including the greedy ones of `agent.greedy_chain`."""
    test_episodes: int = Field(default=100, ge=1, le=MAX_EPISODES)
    """Number of held-out task and seed pairs of an evaluation, the same in each evaluation."""
    test_repeats: int = Field(default=1, ge=1, le=MAX_CHAINS)
    """Number of episodes per held-out pair, for the average over sampled responses."""
    concurrency: int | None = Field(default=None, ge=1)
    """Maximum number of concurrent episodes, on Ray of each node; null: by the machine's cores and free memory."""
    train_max_steps: MaxSteps = MaxSteps.model_construct()
    """Step limits of training episodes."""
    test_max_steps: MaxSteps = MaxSteps.model_construct(easy=30, medium=50, hard=70)
    """Step limits of test episodes."""
    max_parse_errors: int | None = Field(default=None, ge=1)
    """Consecutive replies without a readable action that end an episode as `stuck`; null: no limit."""
    max_repeated_actions: int | None = Field(default=None, ge=2)
    """Consecutive equal actions that end an episode as `stuck`; null: no limit."""
    test_sampling: TestSampling = TestSampling.model_construct()
    """Sampling of test episodes; training episodes keep `policy_config`'s."""
    success_threshold: float = 1.0
    """Minimum reward of a success, if the environment or a reward function gives the reward; judges and reward models
    decide themselves. It is stored with each episode: a change applies to later rollouts."""
    endpoint: PolicyRequestSettings = PolicyRequestSettings.model_construct()
    """The requests to the policy servers."""
    policy_wait: float = Field(default=600.0, ge=0)
    """Time for which requests wait for a policy server that stopped answering, in seconds; at most 30 for one that has
    never answered. A server that failed is probed with requests for one token and is used again once it answers one."""
    episode_timeout: float = Field(default=1800.0, gt=0)
    """Time limit of an episode, in seconds."""
    max_attempts: int = Field(default=3, ge=1)
    """Maximum number of attempts of a failing episode in one command, and failures after which it is given up; those of
    the browser, the policy server and the environment's start don't count. Each attempt is stored."""
    blocklist_hours: float = Field(default=12.0, ge=0)
    """Time for which a site that blocked the browser is skipped, in hours; 0: never skipped."""
    completion_threshold: float = Field(default=1.0, gt=0, le=1)
    """Fraction of the planned episodes after which the others are cancelled, once `completion_grace` has passed; they
    are stored as `cancelled` and remain pending. Values below 1 bias the sample against long episodes."""
    completion_grace: float = Field(default=30.0, ge=0)
    """Time for which remaining episodes continue after the completion threshold, in seconds."""
    file_folders: tuple[str, ...] = ()
    """Folders outside of a task file's own folder from which its tasks may take files (`upload_folder`, `images`)."""
    executor: Literal["local", "ray"] = "local"
    """`local`: this machine; `ray`: one rollout actor on each node of a Ray cluster, and policy servers on each other
    node that offers GPUs; with `loop.mode=async` only these."""
    ray_address: str = ""
    """Address of the Ray cluster; empty: `RAY_ADDRESS`, else the cluster that this machine is a node of."""
    ray_cpus: float = Field(default=1.0, ge=0)
    """CPUs that a rollout actor reserves on its Ray node; nodes with fewer get no actor."""

    def build_endpoint(self, base_url: str, model: str) -> EndpointSettings:
        """Return the record of a policy server."""
        return EndpointSettings(base_url=base_url, model=model, **dict(self.endpoint))
