"""Checks that the nodes of a Ray cluster can reach the policy server."""

from __future__ import annotations

from urllib.parse import urlsplit

from webgym_cli.config.model import Settings
from webgym_cli.errors import UsageError
from webgym_cli.jobs.ray_cluster import RayCluster
from webgym_cli.util.urls import is_loopback


def require_reachable(cluster: RayCluster, settings: Settings, policy: str) -> None:
    """Raise `UsageError` if nodes on other machines would be given a loopback address of this machine.

    `policy`: `vllm` for webgym's server on `serve.host` (nodes with enough GPUs run their own and are not checked),
    `oracle`, or comma-separated base URLs.
    """
    far = [node for node in cluster.nodes(settings.rollout.ray_cpus) if node.address != cluster.here]
    if policy == "vllm":
        far = [node for node in far if not settings.serve.fit(node.gpus)]
    if not far:
        return
    fix = "give an address of this machine that the other nodes can reach"
    places = {"rollout.policy": policy}
    if policy == "vllm":
        places["serve.host"] = f"http://{settings.serve.host}"
        fix = "-s serve.host=0.0.0.0, or an address that the other nodes can reach"
    for key, url in ((key, url.strip()) for key, urls in places.items() for url in urls.split(",")):
        if has_loopback_host(url):
            raise UsageError(
                f"{key}: {urlsplit(url).hostname} leads every node to itself, but {far[0].name} ({far[0].address}) is "
                "another machine",
                hint=fix,
            )


def external_url(base_url: str, host: str, here: str) -> str:
    """Return the base URL of webgym's server for other nodes; a wildcard `host` is replaced by the address `here`."""
    if host not in ("0.0.0.0", "::", ""):
        return base_url
    parts = urlsplit(base_url)
    name = f"[{here}]" if ":" in here else here
    return parts._replace(netloc=f"{name}:{parts.port}").geturl()


def has_loopback_host(url: str) -> bool:
    """Whether a URL's host is a loopback address."""
    return is_loopback(urlsplit(url).hostname or "")
