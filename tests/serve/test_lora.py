"""LoRA adapters by their names, against a process that speaks vLLM's HTTP."""

import asyncio
import os
import signal

import pytest

from tests.serve.fakes import adapter, fake_python, look, until, weights
from webgym_cli.config.load import load
from webgym_cli.serve.arguments import round_rank
from webgym_cli.serve.execute import AdapterError
from webgym_cli.serve.plan import plan_servers


@pytest.fixture
def fleet(tmp_path, open_fleet):
    """Returns how to make servers of a base model."""
    base, python = weights(tmp_path / "base", b"base"), fake_python(tmp_path)

    def make(*overrides, device="cpu", rank=4, restarts=0):
        settings = load(overrides=["serve.port=0", *overrides])
        one = open_fleet(plan_servers(settings, base, python, device, phases=True, lora_rank=rank), restarts=restarts)
        one.base = base
        return one

    return make


def versions(tmp_path, *contents):
    return {f"policy-v{number}": adapter(tmp_path / f"v{number}", content) for number, content in enumerate(contents)}


async def test_an_adapter_is_served_beside_what_is_served_and_dropped_again(fleet, tmp_path):
    one, (old, new) = fleet(), versions(tmp_path, b"1", b"2").items()
    await one.serve(one.base)
    pid = (await look(one.base_urls[0]))["pid"]
    assert await one.add_adapter(*old) and await one.add_adapter(*new)
    seen = await look(one.base_urls[0])
    assert (seen["pid"], seen["adapters"]) == (pid, [old[0], new[0]])
    assert not {"/pause", "/collective_rpc", "/reset_prefix_cache"} & set(seen["calls"])
    await one.drop_adapters({new[0]})
    assert (await look(one.base_urls[0]))["adapters"] == [new[0]]
    await one.serve(one.base, dict([new]))  # it is there
    assert [event["how"] for event in one.events if event["event"] == "swap"] == ["adapter", "adapter"]


async def test_an_adapter_that_is_refused_is_told_and_a_server_of_its_own_start_has_it(fleet, tmp_path, behave):
    one, named = fleet(), versions(tmp_path, b"1")
    await one.serve(one.base)
    behave(adapter="refuses")
    ((name, folder),) = named.items()
    assert not await one.add_adapter(name, folder)
    assert [event["event"] for event in one.events][-1] == "swap_failed"
    pid = (await look(one.base_urls[0]))["pid"]
    await one.serve(one.base, named)
    seen = await look(one.base_urls[0])
    assert seen["pid"] != pid and seen["adapters"] == [name]


async def test_a_replica_that_died_comes_back_with_the_adapters(fleet, tmp_path):
    two, named = fleet("serve.replicas=2", restarts=1), versions(tmp_path, b"1")
    await two.serve(two.base, named)
    watching = asyncio.create_task(two.watch())
    os.kill((await look(two.base_urls[1]))["pid"], signal.SIGKILL)
    await until(lambda: sum(event["event"] == "serve" and "url" in event for event in two.events) == 3)
    assert (await look(two.base_urls[1]))["adapters"] == list(named)
    watching.cancel()


@pytest.mark.parametrize(
    ("overrides", "device", "rank", "served"),
    [
        ((), "cpu", 4, 8),
        ((), "cpu", 0, 0),
        (("serve.enable_lora=false",), "cpu", 4, 0),
        (("serve.host=0.0.0.0",), "cpu", 4, 0),
        ((), "cuda", 4, 0),  # it sleeps while a training runs
        (('serve.gpus=["0"]', 'train.gpus=["1"]'), "cuda", 16, 16),
    ],
)
def test_adapters_are_served_by_name_where_servers_keep_running(fleet, monkeypatch, overrides, device, rank, served):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    plan = fleet(*overrides, device=device, rank=rank).servers[0].plan
    assert plan.lora_rank == served
    assert ("--enable-lora" in plan.argv()) == (served > 0) == ("VLLM_ALLOW_RUNTIME_LORA_UPDATING" in plan.env)


def test_ranks_are_rounded_to_those_that_vllm_takes():
    assert [round_rank(rank) for rank in (0, 1, 2, 8, 9, 500, 513)] == [0, 1, 8, 8, 16, 512, 0]


async def test_an_adapter_that_does_nothing_is_refused_unless_it_is_zero(fleet, tmp_path, behave):
    one, (does, zero) = fleet(), (adapter(tmp_path / "does", b"1"), adapter(tmp_path / "zero", b"\0"))
    await one.serve(one.base)
    behave(adapter="ignored")
    assert not await one.add_adapter("policy-v1", does)
    assert "as the model without it" in next(event["reason"] for event in one.events if event["event"] == "swap_failed")
    assert (await look(one.base_urls[0]))["adapters"] == []
    assert await one.add_adapter("policy-v2", zero)
    with pytest.raises(AdapterError, match="policy-v1"):
        await one.serve(one.base, {"policy-v1": does})
    assert [server.pid for server in one.servers] == [None]
