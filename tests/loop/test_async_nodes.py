"""Asynchronous loops whose policy is served on the nodes of a real Ray cluster, by processes that speak vLLM's HTTP."""

import hashlib
import json
import re
import signal
from collections import defaultdict

import psutil
import pytest

from tests.jobs.local_cluster import SMALL, local_cluster
from tests.loop import dial_vllm
from tests.loop.async_runs import AsyncRun, check_ledger
from tests.serve.fakes import fake_python

BESIDE = ('serve.gpus=["0"]', 'train.gpus=["1"]')
"""Servers and trainer have GPUs of their own."""
QUICK = {"CUDA_VISIBLE_DEVICES": "0,1", "DIAL_PAUSE": "0.2", "TRAIN_SECONDS": "1"}


@pytest.fixture(scope="module")
def cluster():
    with local_cluster(*[{"num_cpus": 1, "num_gpus": 1}] * 2) as cluster:
        yield cluster


@pytest.fixture
def run(tmp_path, tiny_model_dir, cluster):
    """A run that the cluster's nodes serve; no process of it is left at the end."""
    python = fake_python(tmp_path, dial_vllm.__file__)
    nodes_run = NodesRun(tmp_path / "run", "vllm", tiny_model_dir)
    nodes_run.usual = (
        *("train.algorithm=copying_batch", "loop.mode=async", "rollout.executor=ray", "rollout.concurrency=6"),
        *("venvs.device=cuda", f"venvs.serve={python}", "serve.replicas=1", "serve.port=0"),
        f"rollout.ray_address={cluster.address}",
    )
    yield nodes_run
    psutil.wait_procs(nodes_run.find_servers(), 30)
    assert nodes_run.find_servers() == []


class NodesRun(AsyncRun):
    """Its policy is served by processes that say who they are."""

    usual: tuple[str, ...] = ()

    def words(self, command, *assignments):
        return super().words(command, *self.usual, *assignments)

    def begin_training(self, *assignments):
        """Start a loop, and return it when its first training has begun."""
        command = self.start(*assignments, **QUICK)
        command.until(lambda: b'"event": "train"' in command.out.read_bytes())
        return command

    def find_servers(self):
        """Return the processes that serve the policy now."""
        return [process for process in psutil.process_iter() if dial_vllm.__file__ in read_command(process)]

    def read_answers(self):
        """Return by version the digests of the weights that answered it and the processes that had them."""
        digests, processes = defaultdict(set), defaultdict(set)
        stored = (json.loads(line) for file in self.root.glob("*/*/part-*.jsonl") for line in file.open())
        for step in (step for trajectory in stored for step in trajectory["steps"]):
            digest, process = re.match(r"weights (\w+) process (\d+)\n", step["response"]).groups()
            version = step["generation"]["policy_version"]["number"]
            digests[version].add(digest)
            processes[version].add(int(process))
        return dict(digests), dict(processes)

    def read_weights(self):
        """Return the digest of each version's weights."""
        folders = {0: self.model}
        for record in self.root.glob("checkpoints/model_*/checkpoint.json"):
            folders[json.loads(record.read_text())["iteration"] + 1] = record.parent
        files = {version: folder / "model.safetensors" for version, folder in folders.items()}
        return {version: hashlib.sha256(file.read_bytes()).hexdigest() for version, file in files.items()}

    def check_answers(self):
        """Assert that each version was answered by its weights alone; return the weights and the processes."""
        (digests, processes), weights = self.read_answers(), self.read_weights()
        assert {version: {weights[version]} for version in digests} == digests
        return weights, processes


def read_command(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def find_actor(server: psutil.Process) -> psutil.Process | None:
    """Return the Ray actor that a server belongs to; None: it is the loop's own."""
    return next((parent for parent in server.parents() if parent.name().startswith("ray::")), None)


def test_every_version_is_answered_by_the_servers_of_all_nodes_and_by_its_weights_alone(run):
    evaluation = ("loop.eval_every=2", "loop.val_before_train=false", "tasks.test=dial:1,2")
    code, out, error = run.finish(*BESIDE, *evaluation, "loop.iterations=3", **QUICK)
    assert code == 0, error
    evaluated = [event["iteration"] for event in map(json.loads, out.splitlines()) if event["event"] == "evaluation"]
    assert evaluated == [2, 3]
    assert check_ledger(run, bound=1)["versions"] == 3
    weights, processes = run.check_answers()
    assert len(set(weights.values())) == 4
    servers = set().union(*processes.values())
    assert len(servers) == 3  # none was started again
    assert [processes[version] for version in range(2)] == [servers] * 2


def test_a_killed_loop_leaves_no_server_and_a_node_that_is_gone_ends_it_with_its_name_and_it_goes_on(run, cluster):
    loop = (*BESIDE, "loop.iterations=4")
    command = run.begin_training(*loop)
    servers = run.find_servers()
    command.send(signal.SIGKILL)
    assert len(servers) == 3
    assert psutil.wait_procs(servers, 60)[1] == []
    node = cluster.add_node(num_cpus=1, num_gpus=1, **SMALL)
    command = run.begin_training(*loop)
    servers = run.find_servers()
    assert len(servers) == 4
    cluster.remove_node(node, allow_graceful=False)
    code, error = command.finish(), command.err.read_text()
    assert code == 4, error
    assert "serves no policy" in error and "left out" in error
    assert psutil.wait_procs(servers, 30)[1] == []
    code, _, error = run.finish(*loop, **QUICK)
    assert code == 0, error
    assert check_ledger(run, bound=1)["versions"] == 4
    run.check_answers()


def test_a_server_whose_actor_is_killed_ends_with_it_and_another_one_takes_its_place(run):
    command = run.begin_training(*BESIDE, "loop.iterations=3")
    server, actor = next((server, actor) for server in run.find_servers() if (actor := find_actor(server)))
    actor.kill()
    assert psutil.wait_procs([server], 30)[1] == []
    assert command.finish() == 0, command.err.read_text()
    out = command.out.read_text()
    # between two versions or at the swap, whichever comes first
    lost = [event for event in map(json.loads, out.splitlines()) if event["event"] in ("replica", "swap_failed")]
    assert ["its policy server is" in event["message"] for event in lost] == [True]
    assert "started again" in lost[0]["message"]
    assert check_ledger(run, bound=1)["versions"] == 3
    run.check_answers()


def test_in_turns_the_ranks_of_all_nodes_ask_the_servers_of_all_nodes_and_a_lost_node_is_left_out(run, cluster):
    sync, node = ("loop.mode=sync", "loop.iterations=2"), cluster.add_node(num_cpus=1, num_gpus=1, **SMALL)
    command = run.begin_training(*sync, "serve.gpus=[]")
    assert len(run.find_servers()) == 4
    cluster.remove_node(node, allow_graceful=False)
    assert command.finish() == 0, command.err.read_text()
    _, processes = run.check_answers()
    assert len(processes[0]) > 1 and len(run.read_versions()) == 2
    stored = [trajectory["episode"] for trajectory in run.read_stored() if not trajectory["outcome"]["failure"]]
    assert len(stored) == len(set(stored)) == 16
