"""The RL room's tests, in the interpreters where the room's code runs: `role_*.py` in the train role's, one process for
all of them; `serve_sampling.py` compares with vLLM, in the serve role's. `role_peers.py` finds verl beside the role's
packages.
"""

import ast
import json
import subprocess
from pathlib import Path

import pytest

from benchmarks.peers import VERL
from tests.stack_fixtures import needs
from webgym_cli.venvs.locate import package_path, trainer_environ

HERE = Path(__file__).resolve().parent


def functions(file: Path) -> list[str]:
    tree = ast.parse(file.read_text())
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


ON_GPU = HERE / "role_device.py"
CASES = [(file, name) for file in sorted(HERE.glob("role_*.py")) for name in functions(file)]


def packages() -> Path | None:
    """Return where verl can be imported from; None if it is not installed: what compares with it is skipped."""
    return VERL.packages_folder if VERL.installed else None


def variables(python: Path) -> dict[str, str]:
    # As a training's: with another ninja in PATH, DeepSpeed's extensions would be built again, and back by the next.
    return trainer_environ(python) | {"HF_HUB_OFFLINE": "1"}


class Interpreter:
    """A role's interpreter that runs the tests that it is given, one after another."""

    def __init__(self, log: Path, **environment: str) -> None:
        self._log = log
        python = needs("train")
        command = [str(python), str(HERE / "runner.py")]
        env = variables(python) | environment
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=env
            )

    def outcome(self, file: Path, name: str) -> str:
        """Run a test; return why it was skipped or failed, "" if neither."""
        before = self._log.stat().st_size
        self._process.stdin.write(f"{file} {name}\n")
        self._process.stdin.flush()
        try:
            line = self._process.stdout.readline()
        except BaseException:  # the time is up: the next test must not get this one's outcome
            self.close()
            raise
        if not line:
            self._process.wait()
            return f"the interpreter ended with {self._process.returncode}:\n{self._log.read_text()[before:]}"
        return json.loads(line)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """A function that runs a test in its role. An interpreter that a test ended is replaced."""
    started: list[Interpreter] = []

    def run(file: Path, name: str) -> str:
        if not started or started[-1].ended:
            log, further = tmp_path_factory.mktemp("role") / "log", packages()
            started.append(Interpreter(log, **({"PYTHONPATH": f"{package_path()}:{further}"} if further else {})))
        return started[-1].outcome(file, name)

    yield run
    for interpreter in started:
        interpreter.close()


def report(what: str) -> None:
    if what.startswith("skipped: "):
        pytest.skip(what.removeprefix("skipped: "))
    if what:
        pytest.fail(what, pytrace=False)


@pytest.mark.stack
@pytest.mark.parametrize(("file", "name"), CASES, ids=[f"{file.stem}-{name[5:]}" for file, name in CASES])
def test_in_its_role(outcome, file, name):
    report(outcome(file, name))


@pytest.mark.stack
def test_what_is_left_is_what_vllm_samples_from(in_serve_role):
    assert "sampled alike" in in_serve_role(HERE / "serve_sampling.py", package_path())


@pytest.fixture(scope="module")
def on_gpu(gpu, tmp_path_factory):
    interpreter = Interpreter(tmp_path_factory.mktemp("role") / "log", TEST_DEVICE="cuda")
    yield interpreter
    interpreter.close()


@pytest.mark.gpu
@pytest.mark.parametrize("name", functions(ON_GPU))
def test_on_a_gpu(on_gpu, name):
    report(on_gpu.outcome(ON_GPU, name))


@pytest.mark.stack
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [([HERE / "runner.py", ON_GPU], 0, "sees no GPU"), (["-m", "webgym_cli.trainer"], 1, "CONFIG.json")],
    ids=["a file of tests without a GPU", "the trainer without its argument"],
)
def test_what_is_missing_is_told(arguments, code, words):
    python = needs("train")
    env = variables(python) | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([python, *arguments], capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == code, done.stderr
    assert words in (done.stdout, done.stderr)[code] and done.stdout.count("\n") == (code == 0)
