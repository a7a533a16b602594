"""Settings of agents that call tools. Names as in AgentFly's training example."""

from __future__ import annotations

from pydantic import Field

from webgym_cli.config.section import ConfigSection


class AgentSettings(ConfigSection):
    """The tools that a policy may call in the environment `tools`, and what its answers are worth."""

    tools: tuple[str, ...] = ()
    """Built-in tools (`calculator`, `python`, `answer`), tools of installed packages by name (`webgym tools list`), or
    your own as `my_module:my_tool` or `path/to/file.py:my_tool`."""
    reward_name: str = "math_equal_reward"
    """The reward function, named in the same ways."""
    system_prompt: str = ""
    """What the policy is told first; the tools and how to call them follow."""
    max_turns: int = Field(default=4, ge=1)
    """Responses in an episode at most. After the last one its calls are still made, and what there is is scored."""
    num_chains: int = Field(default=1, ge=1)
    """Episodes of each training task that is drawn, one after the other in the plan: a group that is compared. In every
    environment; `rollout.episodes` counts the episodes, not the tasks. In the iterations of demonstrations a task comes
    once: the expert would do the same again."""
    greedy_chain: bool = False
    """One more episode beside the `num_chains` of a training task, at temperature 0 and on the seed of the first: the
    baseline of the group, for `train.algorithm=remax`; it is not trained on. `rollout.episodes` counts it too."""
    tool_timeout: float = Field(default=30.0, gt=0)
    """Longest call of a tool that names no time limit of its own, in seconds."""
    tool_max_length: int = Field(default=2048, ge=1)
    """Longest text of a tool's result that the policy gets to read, in characters, unless the tool names a limit."""
    max_tool_calls: int = Field(default=16, ge=1)
    """Calls in one response at most; a response with more is no action."""
    reward_timeout: float = Field(default=60.0, gt=0)
    """Deadline of the reward function, in seconds."""

    @property
    def group_size(self) -> int:
        """Episodes of a training task that is drawn, in a row in the plan: the chains, then the greedy one."""
        return self.num_chains + self.greedy_chain
