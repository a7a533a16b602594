"""A key in an address stands in no file of a run, and on no screen: it is a variable there, also for `resume`."""

import base64
import json

import pytest

from tests.app import invoke
from tests.json_server import completion, serve_json

SECRET = "PASS-word"
BASIC = base64.b64encode(f"user:{SECRET}".encode()).decode()


class Echo:
    """A chat server that refuses or answers, and tells both its address and its header."""

    status = 401

    def __init__(self):
        self.seen = []

    def answer(self, request, body):
        self.seen.append((request.path, request.headers["Authorization"]))
        text = f"{request.path} {request.headers['Authorization']}"
        if request.command == "GET":
            return 404, {}
        return self.status, completion(text) if self.status == 200 else {"error": {"message": text}}


@pytest.fixture
def server():
    echo = Echo()
    with serve_json(echo.answer) as address:
        echo.port = address.rpartition(":")[2]
        yield echo


def files_with(folder, *texts):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if any(text.encode() in path.read_bytes() for text in texts)]


def test_keys_of_addresses_are_in_no_file_and_no_output(tmp_path, monkeypatch, server):
    address = f"http://user:$POLICY_PASSWORD@127.0.0.1:{server.port}/v1?token=$POLICY_TOKEN"
    monkeypatch.setenv("POLICY_PASSWORD", SECRET)
    monkeypatch.setenv("POLICY_TOKEN", f" {SECRET}+2\n")
    monkeypatch.setattr("sys.argv", ["webgym", "rollout", "--policy", address])
    monkeypatch.setenv("WEBGYM_JUDGE__BASE_URL", address)
    run, rest = tmp_path / "run", ("-c", "arithmetic", "--policy", address, "-s", "rollout.policy_wait=0")
    dry = invoke("rollout", run, *rest, "--episodes", 2, "--dry-run")
    assert dry.exit_code == 0
    result = invoke("rollout", run, *rest, "--episodes", 2, "-s", "rollout.endpoint.retries=0", "--json")
    assert result.exit_code == 1
    assert ("/v1/chat/completions?token=PASS-word%2B2", f"Basic {BASIC}") in server.seen
    assert json.loads((run / "config.json").read_text())["judge"]["base_url"] == address
    monkeypatch.setattr(Echo, "status", 200)
    monkeypatch.setattr(server, "seen", [])
    resumed = invoke("rollout", run, "--policy", address, "--episodes", 2, "-s", "rollout.max_attempts=9")
    assert server.seen and all(header in (None, f"Basic {BASIC}") for _, header in server.seen)
    status = invoke("status", run, "--json")
    assert SECRET not in dry.output + result.output + status.output + f"{result.exception}{resumed.exception}"
    assert {"config.json", "run.json"} <= {path.name for path in run.rglob("*")}
    assert files_with(run, "[key]") and files_with(run, SECRET, BASIC) == []


LITERAL = [f"http://user:{SECRET}@127.0.0.1:9/v1", f"http://127.0.0.1:9/v1?api_key={SECRET}", f"http://{SECRET}@h/v1"]
LITERAL_ELSEWHERE = [
    *[("train.extra", {"hub_token": SECRET}), ("train.extra", {"swanlab_api_key": SECRET})],
    *[("serve.extra_args", ["--api-key", SECRET]), ("serve.extra_args", [f"--hf-token={SECRET}"])],
    *[("browser.args", [f"--proxy-server=http://u:{SECRET}@p:1"]), ("sites.shopping.url", LITERAL[0])],
    *[("browser.cdp_urls", [f"wss://h?token={SECRET}"]), ("sites.gitlab.reset", f"curl http://u:{SECRET}@h")],
    *[(f"{section}.base_url", LITERAL[1]) for section in ("judge", "orm", "generate", "rl.replay")],
    *[(f"judge.jobs.{job}.base_url", LITERAL[0]) for job in ("blocking", "key_points")],
]


@pytest.mark.parametrize("address", [*LITERAL, f"ftp://user:{SECRET}@host", f"http://user:{SECRET}@host:port"])
def test_a_key_in_the_policy_s_address_is_refused(tmp_path, address):
    for more in ((), ("--dry-run",)):
        result = invoke("rollout", tmp_path / "run", "-c", "arithmetic", "--policy", address, *more)
        assert result.exit_code == 1 and "an address holds a key" in str(result.exception)
        assert SECRET not in f"{result.output}{result.exception}"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("key", "value"), LITERAL_ELSEWHERE)
def test_a_key_in_a_setting_is_refused_from_each_source(tmp_path, monkeypatch, key, value):
    file, text = tmp_path / "mine.yaml", value if isinstance(value, str) else json.dumps(value)
    nested = value
    for part in reversed(key.split(".")):
        nested = {part: nested}
    file.write_text(json.dumps(nested))
    for source in (("-s", f"{key}={text}"), ("-c", file)):
        result = invoke("config", "show", *source)
        assert result.exit_code == 1 and key in str(result.exception)
        assert SECRET not in f"{result.output}{result.exception}"
    monkeypatch.setenv(f"WEBGYM_{key.replace('.', '__').upper()}", text)
    result = invoke("config", "show")
    assert result.exit_code == 1 and SECRET not in f"{result.output}{result.exception}"


@pytest.mark.parametrize("key", ["sk-abc\ndef123", "sk-abc\N{EURO SIGN}def", "sk\x1b123"])
@pytest.mark.parametrize("setting", ["judge.api_key_env_var", "rl.replay.api_key_env_var", "orm.api_key_env_var", ""])
def test_a_key_that_no_header_can_carry_is_refused_before_anything(tmp_path, monkeypatch, key, setting):
    monkeypatch.setenv("MINE" if setting else "OPENAI_API_KEY", key)
    more = ("-s", f"{setting}=MINE") if setting else ()
    result = invoke("rollout", tmp_path / "run", "-c", "arithmetic", "--policy", "http://127.0.0.1:9/v1", *more)
    assert result.exit_code == 1 and "environment " in str(result.exception) and "sk" not in str(result.exception)
    assert not (tmp_path / "run").exists()
