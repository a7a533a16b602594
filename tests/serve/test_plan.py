"""The plan of a server: its command line and environment, without starting anything."""

import json
from pathlib import Path

import pytest

from webgym_cli.config.load import load
from webgym_cli.serve.plan import is_loopback, plan_server

PYTHON = Path("/env/bin/python")
_LIMITS = "--limit-mm-per-prompt"


def planned(*overrides, model="Qwen/Qwen3-VL-8B-Instruct", device="cpu", cpus=8):
    return plan_server(load(overrides=overrides), str(model), PYTHON, device, cpus)


def value(plan, flag):
    argv = plan.argv()
    return argv[argv.index(flag) + 1]


def test_cpu_avoids_the_traps_of_the_cpu_backend():
    plan = planned()
    argv = plan.argv()
    assert argv[:3] == [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server"]
    assert "--enforce-eager" in argv
    assert "--no-enable-chunked-prefill" in argv
    assert int(value(plan, "--max-num-batched-tokens")) >= int(value(plan, "--max-model-len"))
    assert value(plan, "--dtype") == "float32"
    assert "--gpu-memory-utilization" not in argv
    assert plan.env["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
    assert plan.env["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert plan.env["OMP_NUM_THREADS"] == "4"
    assert plan.env["TORCHDYNAMO_DISABLE"] == "1"


def test_cuda_has_webgyms_launch_settings():
    plan = planned("serve.data_parallel_size=8", device="cuda")
    expected = {
        "--max-num-seqs": "512",
        "--gpu-memory-utilization": "0.95",
        "--max-model-len": "32768",
        "--tensor-parallel-size": "1",
        "--data-parallel-size": "8",
        "--dtype": "auto",
    }
    assert {flag: value(plan, flag) for flag in expected} == expected
    assert "--enforce-eager" not in plan.argv()
    assert not any(name.startswith(("VLLM_CPU", "OMP", "TORCHDYNAMO")) for name in plan.env)


def test_logprobs_are_those_of_the_sampled_distribution():
    plan = planned()
    assert value(plan, "--logprobs-mode") == "processed_logprobs"
    assert value(plan, "--generation-config") == "vllm"


def test_a_prompt_may_hold_the_history_and_the_present():
    limits = json.loads(value(planned("context_config.history_window=2", "image.image_max_pixels=10000"), _LIMITS))
    assert limits == {"image": {"count": 3, "width": 100, "height": 100}, "video": 0}


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("gpu1", False)],
)
def test_developer_endpoints_are_open_on_loopback_only(host, loopback):
    plan = planned(f"serve.host={host}")
    assert plan.dev_mode is is_loopback(host) is loopback
    assert plan.env["VLLM_SERVER_DEV_MODE"] == ("1" if loopback else "0")


def test_the_hub_is_left_alone_for_a_local_folder_only(tmp_path):
    assert planned(model=tmp_path).to_json()["env"]["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in planned().to_json()["env"]


def test_the_base_url_is_known_unless_the_port_is_open():
    assert planned().base_url == "http://127.0.0.1:8999/v1"
    assert planned("serve.port=0").base_url == ""
    assert planned("serve.host=0.0.0.0").base_url == "http://127.0.0.1:8999/v1"
    assert planned("serve.host=::1").base_url == "http://[::1]:8999/v1"


def test_extra_arguments_come_last():
    plan = planned('serve.extra_args=["--reasoning-parser","deepseek_r1"]')
    assert plan.argv(model="other", port=5)[-2:] == ["--reasoning-parser", "deepseek_r1"]
    assert plan.argv(model="other", port=5)[3:7] == ["--model", "other", "--port", "5"]


def test_a_plan_is_json_and_the_same_twice():
    assert json.loads(json.dumps(planned().to_json())) == planned().to_json()
    assert planned() == planned()
