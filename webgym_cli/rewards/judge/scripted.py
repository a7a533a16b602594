"""The scripted judge as a registered model server: `judge.base_url=scripted`, `generate.base_url=scripted`."""

from __future__ import annotations

from webgym_cli.config.model_servers import ModelServer
from webgym_cli.util.registry import lazy

SCRIPTED = ModelServer(
    "scripted-judge", lazy("webgym_cli.rewards.judge.scripted_server:start_scripted_judge"), by_rules=True
)
