"""vLLM servers in a Ray actor, on the GPUs that Ray assigned to its process.

They listen on loopback, so that weights can be updated in place and nothing is reachable from other machines.
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
    """Return the server plans for the GPUs that Ray assigned to this process. `replicas`: as `serve.replicas`."""
    here = settings.serve.model_copy(update={"host": "127.0.0.1", "port": 0, "gpus": (), "replicas": replicas})
    settings = settings.model_copy(update={"serve": here})
    python, device = role_python(settings, "serve"), resolve_device(settings.venvs.device)
    return plan_servers(settings, model, python, device, lora_rank=lora_rank)


@asynccontextmanager
async def serve_on_node(settings: Settings, model: str, logs: Path, number: int) -> AsyncIterator[Fleet]:
    """Serve a model within the block. `logs`: parent of the log folder `node_<number>`."""
    plans = plan_node_servers(settings, model, replicas=settings.serve.replicas)
    # events of servers on other nodes go only to their logs
    fleet = Fleet(plans, logs / f"node_{number}", lambda event: None, restarts=settings.serve.restarts)
    try:
        await fleet.serve(model)
        yield fleet
    finally:
        await fleet.stop()
