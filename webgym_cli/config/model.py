"""The settings of a run: all sections together. The text under a field is its help.

`algorithm_config`, `log_config`, `policy_config` and `context_config` keep WebGym's names and defaults.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, model_validator

from webgym_cli.config.agent import AgentSettings
from webgym_cli.config.algorithm_config import AlgorithmSettings, FilterSettings
from webgym_cli.config.browser import BrowserSettings
from webgym_cli.config.cost import CostSettings
from webgym_cli.config.generate import GenerateSettings
from webgym_cli.config.judge import JudgeSettings, OrmSettings
from webgym_cli.config.loop import CurriculumSettings, LoopSettings
from webgym_cli.config.policy_config import ContextSettings, ImageSettings, PolicySettings
from webgym_cli.config.rl import RlSettings
from webgym_cli.config.rollout import RolloutSettings
from webgym_cli.config.section import ConfigSection
from webgym_cli.config.serve import ServeSettings
from webgym_cli.config.sites import SiteSettings
from webgym_cli.config.tasks import TasksSettings
from webgym_cli.config.train import LogSettings, TrainSettings, VenvsSettings
from webgym_cli.records.series import VLLM
from webgym_cli.util.optional import known_or


class Settings(ConfigSection):
    """All settings of a run."""

    seed: int = Field(default=0, ge=0, lt=2**32)
    """Seed of all random choices."""
    plugins: tuple[str, ...] = ()
    """Python files or modules that are imported before a command runs, in this order, but not by commands that only
    read a run. They register environments, advantage estimators, export formats, judge protocols or training backends
    by name. A relative path starts at the current folder."""
    sites: dict[str, SiteSettings] = Field(default_factory=dict)
    """The sites of tasks, by name: addresses, accounts by role, logins, isolation of episodes
    ([fields](#sitesettings)). Several sources are merged key by key, like `sites.shop.url`."""
    tasks: TasksSettings = TasksSettings.model_construct()
    policy_config: PolicySettings = PolicySettings.model_construct()
    context_config: ContextSettings = ContextSettings.model_construct()
    agent: AgentSettings = AgentSettings.model_construct()
    image: ImageSettings = ImageSettings.model_construct()
    browser: BrowserSettings = BrowserSettings.model_construct()
    rollout: RolloutSettings = RolloutSettings.model_construct()
    judge: JudgeSettings = JudgeSettings.model_construct()
    orm: OrmSettings = OrmSettings.model_construct()
    generate: GenerateSettings = GenerateSettings.model_construct()
    cost: CostSettings = CostSettings.model_construct()
    serve: ServeSettings = ServeSettings.model_construct()
    log_config: LogSettings = LogSettings.model_construct()
    algorithm_config: AlgorithmSettings = AlgorithmSettings.model_construct()
    filters: FilterSettings = FilterSettings.model_construct()
    train: TrainSettings = TrainSettings.model_construct()
    rl: RlSettings = RlSettings.model_construct()
    venvs: VenvsSettings = VenvsSettings.model_construct()
    loop: LoopSettings = LoopSettings.model_construct()
    curriculum: CurriculumSettings = CurriculumSettings.model_construct()

    def with_changes(self, **sections: Mapping[str, object]) -> Settings:
        """Return the settings with other values of some sections' keys, which are not validated."""
        changed = {name: getattr(self, name).model_copy(update=values) for name, values in sections.items()}
        return self.model_copy(update=changed)

    @property
    def test_seed(self) -> int:
        """Seed of the test episodes."""
        return known_or(self.tasks.test_seed, self.seed)

    @property
    def sampling_seed(self) -> int:
        """Seed by which `prepare` samples training data."""
        return known_or(self.algorithm_config.seed, self.seed)

    @property
    def subject(self) -> str:
        """The policy as `webgym eval` takes it: the base model, an expert, or servers by URL."""
        policy = self.rollout.policy
        return self.policy_config.base_model if policy == VLLM else policy

    @property
    def policy_models(self) -> tuple[str, ...]:
        """The names under which the acting policy may have a price in `cost.prices`."""
        return self.policy_config.base_model, self.serve.served_model_name

    @model_validator(mode="after")
    def _lengths_fit(self) -> Settings:
        # vLLM refuses such requests one by one; better before anything starts.
        if self.policy_config.max_new_tokens >= self.serve.max_model_len:
            raise ValueError(
                f"policy_config.max_new_tokens ({self.policy_config.max_new_tokens}) leaves no room for a prompt "
                f"within serve.max_model_len ({self.serve.max_model_len})"
            )
        return self


# Keys that may not change within a run: its data would no longer be comparable.
FROZEN_FOR_A_RUN = (
    *("seed", "tasks", "context_config", "agent.tools", "agent.reward_name", "agent.system_prompt", "agent.max_turns"),
    *("agent.num_chains", "agent.greedy_chain", "policy_config.base_model", "policy_config.template", "image"),
)
