"""The plan of a server: its command line and environment, without starting anything."""

import json
import os
from pathlib import Path

import pytest

from tests.tables import each
from webgym_cli.agent.prompts.webrl_prompt import RAW_TEMPLATE
from webgym_cli.config.load import load
from webgym_cli.errors import SettingsError
from webgym_cli.jobs import devices
from webgym_cli.serve import cpu_server
from webgym_cli.serve.arguments import logprobs_kind
from webgym_cli.serve.plan import plan_servers
from webgym_cli.util.urls import is_loopback

PYTHON = Path("/env/bin/python")
MODEL = "Qwen/Qwen3-VL-8B-Instruct"


def fleet(*overrides, model=MODEL, device="cpu", gpus=None, **more):
    """Return the plans on a machine with eight cores and these GPUs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
        if gpus is not None:
            patch.setenv("CUDA_VISIBLE_DEVICES", ",".join(gpus))
        return plan_servers(load(overrides=overrides), str(model), PYTHON, device, **more)


def planned(*overrides, **more):
    (plan,) = fleet(*overrides, **more)
    return plan


def value(plan, flag):
    argv = plan.argv()
    return argv[argv.index(flag) + 1] if flag in argv else None


PROMPT = "context_config.prompt_version"
THINKING = "policy_config.base_model=Qwen/Qwen3-VL-8B-Thinking"
HISTORY = "context_config.history_window=2 image.image_max_pixels=10000"
IMAGES = '{"image":{"count":3,"width":100,"height":100},"video":0}'
ARGUMENTS = {
    "raw prompts have a template that adds nothing": (f"{PROMPT}=webrl_released", "--chat-template", RAW_TEMPLATE),
    "other prompts have the model's own": (f"{PROMPT}=webrl", "--chat-template", None),
    "a thinking model has its parser": (THINKING, "--reasoning-parser", "deepseek_r1"),
    "thoughts may stay whole": (f"{THINKING} serve.reasoning_parser=none", "--reasoning-parser", None),
    "logprobs are those of the sampled distribution": ("", "--logprobs-mode", "processed_logprobs"),
    "nothing else decides how is sampled": ("", "--generation-config", "vllm"),
    "a prompt may hold the history and the present": (HISTORY, "--limit-mm-per-prompt", IMAGES),
}


@pytest.mark.parametrize(("overrides", "flag", "expected"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments_follow_the_settings(overrides, flag, expected):
    assert value(planned(*overrides.split()), flag) == expected


def test_code_of_a_model_runs_only_where_the_settings_trust_it():
    assert "--trust-remote-code" not in planned().argv()
    assert "--trust-remote-code" in planned("policy_config.trust_remote_code=true").argv()


def test_llamas_chat_template_is_told_its_date(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "chat_template.jinja").write_text("{{ date_string }}")
    (plan,) = plan_servers(load(), str(tmp_path), PYTHON, "cpu")
    assert value(plan, "--default-chat-template-kwargs") == '{"date_string": "26 Jul 2024"}'
    assert "--default-chat-template-kwargs" not in planned().argv()


def test_cpu_avoids_the_traps_of_the_cpu_backend():
    plan = planned()
    argv = plan.argv()
    assert argv[:3] == [str(PYTHON), cpu_server.__file__, "--model"]
    assert "--enforce-eager" in argv and "--no-enable-chunked-prefill" in argv
    assert int(value(plan, "--max-num-batched-tokens")) >= int(value(plan, "--max-model-len"))
    assert value(plan, "--dtype") == "float32"
    assert "--gpu-memory-utilization" not in argv
    assert plan.env["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
    assert value(plan, "--kv-cache-memory-bytes") == str(1 << 30)
    assert value(planned("serve.cpu_kvcache_gb=0.125"), "--kv-cache-memory-bytes") == str(1 << 27)
    assert (plan.env["OMP_NUM_THREADS"], plan.env["TORCHDYNAMO_DISABLE"]) == ("4", "1")


def test_on_a_cpu_one_worker_is_the_engine_itself_and_several_are_processes():
    assert value(planned(), "--distributed-executor-backend") == "uni"
    assert planned().env["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    several = planned("serve.tensor_parallel_size=2")
    assert "--distributed-executor-backend" not in several.argv()
    assert "VLLM_ENABLE_V1_MULTIPROCESSING" not in several.env


def test_cuda_has_webgyms_launch_settings():
    plan = planned("serve.data_parallel_size=8", device="cuda", gpus=tuple("01234567"))
    assert plan.argv()[:3] == [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server"]
    expected = {"--max-num-seqs": "512", "--gpu-memory-utilization": "0.95", "--max-model-len": "32768"}
    expected |= {"--tensor-parallel-size": "1", "--data-parallel-size": "8", "--dtype": "auto"}
    assert {flag: value(plan, flag) for flag in expected} == expected
    # vLLM's own choice is right for GPUs: cached prefixes, split prefills, asynchronous scheduling
    left = {"--enforce-eager", "--no-enable-prefix-caching", "--max-num-batched-tokens", "--reasoning-parser"}
    assert not left & set(plan.argv())
    assert "CUDA_VISIBLE_DEVICES" not in plan.env
    assert plan.env["PYTHONSAFEPATH"] == "1"  # a `datasets` of the current folder is not taken for the package
    assert not any(name.startswith(("VLLM_CPU", "OMP", "TORCHDYNAMO")) for name in plan.env)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_arguments_of_the_engine_are_the_users_and_come_last(device):
    own = ["--enforce-eager", "--max-num-batched-tokens", "99999", "--mm-processor-cache-gb", "0"]
    assert planned(f"serve.extra_args={json.dumps(own)}", device=device, gpus=()).argv()[-5:] == own


@each(
    ("gpus", "overrides", "shares"),
    [
        ("", [], [None]),
        ("0", [], [None]),
        ("01", [], ["0", "1"]),
        ("01234567", ["serve.tensor_parallel_size=4"], ["0,1,2,3", "4,5,6,7"]),
        ("01234567", ["serve.tensor_parallel_size=2", "serve.data_parallel_size=2"], ["0,1,2,3", "4,5,6,7"]),
        ("0123", ["serve.replicas=2"], ["0", "1"]),
        ("0123", ["serve.replicas=1"], [None]),
        ("0123", ['serve.gpus=["2","3"]'], ["2", "3"]),
        ("0123", ['serve.gpus=["3"]'], ["3"]),
    ],
)
def test_gpus_are_shared_out(gpus, overrides, shares):
    plans = fleet(*overrides, device="cuda", gpus=tuple(gpus))
    assert [plan.env.get("CUDA_VISIBLE_DEVICES") for plan in plans] == shares
    assert [plan.port for plan in plans] == [8999 + number for number in range(len(shares))]
    assert [plan.replica for plan in plans] == list(range(len(shares)))


def test_the_gpus_are_those_that_we_may_use(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a1,GPU-b2")
    assert [plan.env["CUDA_VISIBLE_DEVICES"] for plan in fleet(device="cuda")] == ["GPU-a1", "GPU-b2"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(devices, "present", lambda: 3)
    assert [plan.env["CUDA_VISIBLE_DEVICES"] for plan in fleet(device="cuda")] == ["0", "1", "2"]


SLEEP = "serve.during_training=sleep"


@each(
    ("why", "gpus", "overrides"),
    [
        (r"serve\.replicas: 2 .*2 GPUs .*4, 3", "012", ["serve.replicas=2", "serve.tensor_parallel_size=2"]),
        (r"serve\.port: 2 .*65535", "01", ["serve.port=65535"]),
        (r"serve\.gpus: CUDA_VISIBLE_DEVICES=0,1,2,3 hides 4", "0123", ['serve.gpus=["4"]']),
        (r"serve\.gpus: .*'one'", "0123", ['serve.gpus=["one"]']),
        ("serve.during_training: sleep is not possible here: vLLM sleeps on GPUs only", "", [SLEEP]),
        ("sleep is not possible here: 0.0.0.0 is no loopback address", "0", [SLEEP, "serve.host=0.0.0.0"]),
        *[(r"serve\.cpu_kvcache_gb", "", [f"serve.cpu_kvcache_gb={size}"]) for size in ("0", "-1", "inf", "nan")],
    ],
)
def test_what_no_server_can_do_is_refused(why, gpus, overrides):
    with pytest.raises(SettingsError, match=why):
        fleet(*overrides, device="cuda" if gpus else "cpu", gpus=tuple(gpus), phases=True)


def test_replicas_have_ports_up_to_the_last():
    assert fleet("serve.port=65534", device="cuda", gpus=tuple("01"))[1].port == 65535


def test_replicas_on_a_cpu_share_its_cores():
    plans = fleet("serve.replicas=2", "serve.port=0")
    assert [plan.env["OMP_NUM_THREADS"] for plan in plans] == ["2", "2"]
    assert [plan.port for plan in plans] == [0, 0]


@pytest.mark.parametrize(
    ("device", "overrides", "how"),
    [
        ("cuda", [], "sleep"),
        ("cuda", ["serve.host=0.0.0.0"], "stop"),
        ("cpu", [], "keep"),
        ("cpu", ["serve.during_training=stop"], "stop"),
        ("cuda", ["serve.during_training=keep"], "keep"),
        ("cuda", ['serve.gpus=["0"]', 'train.gpus=["1"]'], "keep"),  # beside a training on other GPUs
        ("cuda", ['serve.gpus=["0"]', 'train.gpus=["0","1"]'], "sleep"),
        ("cuda", ['serve.gpus=["0"]', "train.gpus=[]"], "sleep"),
    ],
)
def test_what_a_server_does_during_training(device, overrides, how):
    plan = fleet(*overrides, device=device, gpus=("0", "1"), phases=True)[0]
    assert plan.sleep.action == how
    assert ("--enable-sleep-mode" in plan.argv()) == (how == "sleep")
    # nothing comes between
    assert fleet(*overrides, device=device, gpus=("0", "1"))[0].sleep.action == "keep"


@each(
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


def test_a_plan_is_json_and_the_same_twice():
    facts = planned().to_json()
    assert json.loads(json.dumps(facts)) == planned().to_json()
    assert list(facts) == [
        *("event", "stage", "model", "device", "host", "port", "served_name", "env", "dev_mode", "startup_timeout"),
        *("stall_timeout", "sleep", "lora_rank", "replica", "base_url", "argv"),
    ]
    assert planned() == planned()


@each(
    ("arguments", "text"),
    [
        ([], "processed"),
        (["--enforce-eager"], "processed"),
        (["--logprobs-mode", "raw_logprobs"], "raw"),
        (["--logprobs_mode=raw_logprobs"], "raw"),
        (["--logprobs-mode", "raw_logprobs", "--logprobs-mode=processed_logprobs"], "processed"),
    ],
)
def test_the_last_argument_decides_what_logprobs_are_of(arguments, text):
    assert logprobs_kind(load(overrides=[f"serve.extra_args={json.dumps(arguments)}"])) == text


@pytest.mark.parametrize(
    ("arguments", "setting"),
    [
        (["--max-model-len", "4096"], "serve.max_model_len"),
        (["--enforce-eager", "--max_model_len=4096"], "serve.max_model_len"),
        (["--served-model-name", "mine"], "serve.served_model_name"),
        (["-tp=2"], "serve.tensor_parallel_size"),
        (["--model", "other"], "policy_config.base_model"),
    ],
    ids=str,
)
def test_an_argument_whose_setting_others_read_is_refused(arguments, setting):
    with pytest.raises(SettingsError) as raised:
        planned(f"serve.extra_args={json.dumps(arguments)}")
    assert setting in raised.value.hint


@pytest.mark.parametrize("arguments", [["--logprobs-mode", "raw_logits"], ["--logprobs-mode=raw_logits"]], ids=str)
def test_logits_are_no_log_probabilities(arguments):
    with pytest.raises(SettingsError, match=r"serve\.extra_args: --logprobs-mode raw_logits gives no") as raised:
        logprobs_kind(load(overrides=[f"serve.extra_args={json.dumps(arguments)}"]))
    assert raised.value.hint
