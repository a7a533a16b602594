"""Fixtures for the tests that run the real vLLM and LLaMA-Factory."""

import array
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from filelock import FileLock

from webgym_cli.config.load import load
from webgym_cli.errors import VenvError
from webgym_cli.records.prompt_version import PromptVersion
from webgym_cli.testing.tiny_model import TinyModel, build_tiny_model
from webgym_cli.venvs.locate import driver_answers, resolve_device, role_python


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory):
    """Folder of a tiny Qwen3-VL. Its embeddings aren't tied: on a CPU a tied model can't be swapped in place."""
    return shared_model(tmp_path_factory, "tiny", TinyModel(tie_embeddings=False))


@pytest.fixture(scope="session")
def tiny_pages_model_dir(tmp_path_factory):
    """Folder of the same with a tokenizer for WebRL's pages."""
    return shared_model(tmp_path_factory, "tiny-pages", TinyModel(prompt_version=PromptVersion.WEBRL))


def shared_model(factory: pytest.TempPathFactory, name: str, model: TinyModel) -> Path:
    """Return the folder of a model that the first of `make test`'s processes builds for all of them."""
    needs("train")
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name / "model"
    folder.parent.mkdir(exist_ok=True)
    with FileLock(folder.parent / "lock"):
        return build_tiny_model(folder, load(), model)


def needs(role: str) -> Path:
    """Return a role's interpreter; skip the test where the role has not been set up."""
    try:
        return role_python(load(), role)
    except VenvError as error:
        pytest.skip(str(error))


LIBRARIES = {
    "train": ("llamafactory.data", "llamafactory.hparams", "llamafactory.model", "datasets"),
    "serve": ("vllm.engine.arg_utils", "vllm.reasoning", "vllm.v1.sample.ops.topk_topp_sampler", "transformers"),
}


@pytest.fixture(scope="session")
def in_train_role(tmp_path_factory):
    """Runs a script (`FILE ...` or `-c CODE ...`) in the train role's interpreter and returns its stdout."""
    with forks_of("train", tmp_path_factory.mktemp("role")) as run:
        yield run


@pytest.fixture(scope="session")
def in_serve_role(tmp_path_factory):
    """Runs a script in the serve role's interpreter and returns its stdout."""
    with forks_of("serve", tmp_path_factory.mktemp("role")) as run:
        yield run


@contextmanager
def forks_of(role: str, folder: Path) -> Iterator[Callable[..., str]]:
    """Yield what runs scripts in processes forked from a role's interpreter, which imports its libraries once."""
    out, err = folder / "out", folder / "err"
    # -P: tests/ has packages with the names of Python's own
    command = [needs(role), "-P", Path(__file__).with_name("role_forks.py"), *LIBRARIES[role]]
    alone = {"HF_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}
    alone |= {"HF_HUB_OFFLINE": "1"} if role == "train" else {}  # offline vLLM looks for each model's files here
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": err.open("wb")}
    process = subprocess.Popen(command, text=True, env=os.environ | alone, **pipes)

    def run(*argv: object, stdin: str = "") -> str:
        request = {"argv": [*map(str, argv)], "stdin": stdin, "out": str(out), "err": str(err)}
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "0\n", err.read_text()[-4000:]
        return out.read_text(errors="replace")

    yield run
    process.kill()
    process.communicate()


@pytest.fixture(scope="session")
def gpu():
    """Skips the test where there is no GPU."""
    if not driver_answers():
        pytest.skip("no GPU: no NVIDIA driver answers")


@pytest.fixture(scope="session")
def second_model_dir(tiny_model_dir, tmp_path_factory):
    """The tiny model with other weights: the values of each matrix in reverse order."""
    folder = tmp_path_factory.mktemp("second") / "model"
    shutil.copytree(tiny_model_dir, folder)
    file = folder / "model.safetensors"
    contents = bytearray(file.read_bytes())
    start = 8 + int.from_bytes(contents[:8], "little")
    for name, tensor in json.loads(contents[8:start]).items():
        if name != "__metadata__" and len(tensor["shape"]) > 1:
            first, last = (start + offset for offset in tensor["data_offsets"])
            values = array.array({"F32": "f", "BF16": "H", "F16": "H"}[tensor["dtype"]], bytes(contents[first:last]))
            values.reverse()
            contents[first:last] = values.tobytes()
    file.write_bytes(contents)
    return folder


@pytest.fixture(scope="session")
async def policy_server(tiny_model_dir, tmp_path_factory):
    """One vLLM server for all tests; those that swap its weights put the old ones back."""
    from webgym_cli.serve.execute import PolicyServer
    from webgym_cli.serve.plan import plan_servers

    python = needs("serve")
    small = ["serve.max_model_len=4096", "serve.cpu_kvcache_gb=0.125", "policy_config.max_new_tokens=256"]
    settings = load(overrides=["serve.port=0", *small])
    (plan,) = plan_servers(settings, str(tiny_model_dir), python, resolve_device(settings.venvs.device))
    server = PolicyServer(plan, tmp_path_factory.mktemp("serve"), lambda event: None)
    await server.start()
    yield server
    await server.stop()
