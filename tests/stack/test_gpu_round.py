"""Serving, training and new weights in turn: on the CPU with the tests' server, on a GPU with one that can sleep."""

import pytest

from tests.serve.test_execute import chat, decided_by_weights
from tests.stack_fixtures import needs
from webgym_cli.cli import gpu_round
from webgym_cli.config.load import load
from webgym_cli.jobs.gpu import open_nvml
from webgym_cli.serve.execute import PolicyServer
from webgym_cli.serve.plan import plan_servers

SWAPS = {"cpu": 1, "cuda": 100}


@pytest.fixture(scope="session")
async def gpu_server(gpu, tiny_model_dir, tmp_path_factory):
    """A server on a GPU that sleeps while there is training."""
    python, settings = needs("serve"), load(overrides=gpu_round.SERVING)
    plan = plan_servers(settings, str(tiny_model_dir), python, "cuda", phases=True)[0]
    server = PolicyServer(plan, tmp_path_factory.mktemp("serve"), lambda event: None, nvml=open_nvml("cuda"))
    await server.start()
    yield server
    await server.stop()


@pytest.fixture(
    params=[pytest.param("policy_server", marks=pytest.mark.stack), pytest.param("gpu_server", marks=pytest.mark.gpu)]
)
def server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def events(server, monkeypatch):
    result = []
    monkeypatch.setattr(server, "_sink", result.append)
    return result


async def test_the_trainer_s_log_probs_are_the_server_s_with_pictures_and_the_result_is_served(
    server, events, tiny_model_dir, tmp_path
):
    before = decided_by_weights(await chat(server))
    try:
        log = await gpu_round.train_once(server, needs("train"), tmp_path)
        result = gpu_round.summarize(events, log)
        # in bfloat16 on a GPU less than 0.015; on the CPU both compute in float32
        assert abs(result.mismatch_kl) < (1e-6 if server.plan.device == "cpu" else 0.015)
        assert log["actor/grad_norm"] > 0
        assert decided_by_weights(await chat(server)) != before
    finally:
        await server.swap(str(tiny_model_dir))
    assert decided_by_weights(await chat(server)) == before
    assert {event["how"] for event in events if "how" in event} == {"in_place"}
    assert ("sleep" in result.seconds) == (server.plan.device == "cuda")


async def test_swaps_change_the_answers_and_back_restore_them(server, events, tiny_model_dir, second_model_dir):
    pid, first = server.pid, decided_by_weights(await chat(server))
    other = None
    for _ in range(SWAPS[server.plan.device]):
        await server.swap(str(second_model_dir))
        answer = decided_by_weights(await chat(server))
        other = other or answer
        assert answer == other != first
        await server.swap(str(tiny_model_dir))
        assert decided_by_weights(await chat(server)) == first
    assert {event["how"] for event in events} == {"in_place"}
    assert server.pid == pid


@pytest.mark.gpu
async def test_a_server_sleeps_and_wakes_with_the_weights_that_are_wanted(gpu_server, tiny_model_dir, second_model_dir):
    first = decided_by_weights(await chat(gpu_server))
    for wanted in (tiny_model_dir, second_model_dir, tiny_model_dir):
        await gpu_server.release_gpus()
        await gpu_server.serve(str(wanted))
        assert (decided_by_weights(await chat(gpu_server)) == first) == (wanted == tiny_model_dir)
