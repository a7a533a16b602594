"""Settings of agents that call tools. Names as in AgentFly's training example."""

from __future__ import annotations

from pydantic import Field

from webgym_cli.config.limits import MAX_CHAINS
from webgym_cli.config.section import ConfigSection


class AgentSettings(ConfigSection):
    """The tools that a policy may call in the environment `tools`, and the reward of its answers."""

    tools: tuple[str, ...] = ()
    """Built-in tools (`calculator`, `python`, `answer`), tools of installed packages by name (`webgym tools list`), or
    your own as `my_module:my_tool` or `path/to/file.py:my_tool`."""
    reward_name: str = "math_equal_reward"
    """The reward function of the environment `tools`, named in the same ways; others have none."""
    system_prompt: str = ""
    """System prompt; the descriptions of the tools and of the call format are appended to it."""
    call_format: str = "auto"
    """Call format. `qwen`: that of the chat templates of Qwen2.5 and Qwen3; `hermes`: the same tags, described in
    words; `react`: Thought, Action, Action Input and Final Answer; `code`: Python blocks, for a tool with the parameter
    `code`; or a format of a plugin. `auto`: the model's own if it is known, else `hermes`."""
    max_turns: int = Field(default=4, ge=1)
    """Maximum number of responses in an episode. The calls of the last response are still executed before the episode
    is scored."""
    num_chains: int = Field(default=1, ge=1, le=MAX_CHAINS)
    """Group size: episodes of each drawn training task, adjacent in the plan and compared with one another. Applies to
    every environment; `rollout.episodes` counts the episodes, not the tasks. Iterations of demonstrations run each task
    once, because the expert would repeat itself."""
    greedy_chain: bool = False
    """Add one greedy episode (temperature 0, the seed of the first) to the `num_chains` of a training task: the
    baseline of `train.algorithm=remax`. It counts in `rollout.episodes` and is excluded from training."""
    tool_timeout: float = Field(default=30.0, gt=0)
    """Default time limit of one tool call, in seconds; a tool's own limit overrides it."""
    reward_timeout: float = Field(default=60.0, gt=0)
    """Time limit of the reward function, in seconds."""

    @property
    def group_size(self) -> int:
        """Episodes of a drawn training task: the chains, then the greedy one."""
        return self.num_chains + self.greedy_chain
