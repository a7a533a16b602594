"""A real Ray cluster on this machine, whose head works nothing and soon sees that a node is gone."""

import contextlib

import pytest

SMALL = {"object_store_memory": 80 * 2**20}
"""What a node is made with, beside its CPUs and GPUs."""
QUIET = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
"""The head without what prints and scales: two interpreters that take as long to start as a node."""
QUICK = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 3}


@contextlib.contextmanager
def local_cluster(*nodes: dict[str, int]):
    """Start a cluster with these nodes beside its head; skip the test where Ray is not installed."""
    Cluster = pytest.importorskip("ray.cluster_utils").Cluster

    head = {**SMALL, **QUIET, "num_cpus": 0, "_system_config": QUICK}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for node in nodes:
            cluster.add_node(**node, **SMALL)
        yield cluster
    finally:
        cluster.shutdown()
