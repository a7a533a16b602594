"""A password in an address stands in no file of a run, and on no screen."""

from typer.testing import CliRunner

from webgym_cli.cli.app import app

SECRET = "PASS-word"


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_password_of_the_policys_address_is_in_no_file_and_no_output(tmp_path, monkeypatch):
    address = f"http://user:{SECRET}@127.0.0.1:9/v1"
    monkeypatch.setattr("sys.argv", ["webgym", "rollout", "--policy", address])
    monkeypatch.setenv("WEBGYM_JUDGE__BASE_URL", address)
    run, rest = (
        tmp_path / "run",
        ("-c", "arithmetic", "--policy", address, "-s", "rollout.policy_retries=0", "-s", "rollout.policy_wait=0"),
    )
    dry = invoke("rollout", run, *rest, "--episodes", 2, "--dry-run")
    assert dry.exit_code == 0
    result = invoke("rollout", run, *rest, "--episodes", 2, "--json")
    assert result.exit_code == 1
    assert "policy_unavailable" in result.output
    status = invoke("status", run, "--json")
    assert SECRET not in dry.output + result.output + status.output
    files = [path for path in run.rglob("*") if path.is_file()]
    assert {"config.json", "run.json", "state.json"} <= {path.name for path in files}
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


def test_a_password_of_no_address_is_not_told(tmp_path):
    for address in (f"ftp://user:{SECRET}@host", f"http://user:{SECRET}@", f"http://user:{SECRET}@host:port"):
        result = invoke("rollout", tmp_path / "run", "-c", "arithmetic", "--policy", address, "--dry-run")
        assert result.exit_code != 0
        assert SECRET not in f"{result.output}{result.exception}"
