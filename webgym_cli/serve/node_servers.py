"""Servers of ours in a Ray actor, on the GPUs that Ray gave its process.

They listen on loopback: nothing is reachable from elsewhere, and weights can be swapped in place.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from webgym_cli.config.model import Settings
from webgym_cli.serve.fleet import Fleet
from webgym_cli.serve.plan import ServerPlan, plan_servers
from webgym_cli.venvs.locate import resolve_device, role_python


def plan_node_servers(
    settings: Settings, model: str, *, replicas: int | None = None, lora_rank: int = 0
) -> list[ServerPlan]:
    """Return the plans of the servers for the GPUs that Ray gave this process. `replicas`: as `serve.replicas`."""
    here = settings.serve.model_copy(update={"host": "127.0.0.1", "port": 0, "gpus": (), "replicas": replicas})
    settings = settings.model_copy(update={"serve": here})
    python, device = role_python(settings, "serve"), resolve_device(settings.venvs.device)
    return plan_servers(settings, model, python, device, lora_rank=lora_rank)


@asynccontextmanager
async def serve_on_node(settings: Settings, model: str, logs: Path, number: int) -> AsyncIterator[Fleet]:
    """Serve a model for the time of the block. `logs`: the folder in which the node of this number has its own."""
    plans = plan_node_servers(settings, model, replicas=settings.serve.replicas)
    # what a server of another node says is in its log
    fleet = Fleet(plans, logs / f"node_{number}", lambda event: None, restarts=settings.serve.restarts)
    try:
        await fleet.serve(model)
        yield fleet
    finally:
        await fleet.stop()
