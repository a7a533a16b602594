"""The start-up hook, in a real interpreter, with stand-ins for torch and what needs help."""

import subprocess
import sys

import pytest

from webgym_cli.venvs import cpu_fixes

TORCH = """
DECLARED = []
class version:
    cuda = {cuda!r}
class library:
    class Library:
        def __init__(self, namespace, kind):
            self.namespace = namespace
        def define(self, schema):
            DECLARED.append(self.namespace + "::" + schema.partition("(")[0])
"""
EXTENSION = "def _has_ops():\n    return {built}\n"
VISION = "from torchvision import extension\nimport torch\nAT_IMPORT = list(torch.DECLARED)\n"
AUDIO_UTILS = "def _load_lib(name):\n    raise OSError('libcudart.so: cannot open shared object file')\n"
AUDIO = "from torchaudio._extension import utils\nHAS = utils._load_lib('lib')\n"


def environment(tmp_path, cuda=None, built=False):
    packages = tmp_path / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    for name, text in {
        "torch/__init__.py": TORCH.format(cuda=cuda),
        "torchvision/__init__.py": VISION,
        "torchvision/extension.py": EXTENSION.format(built=built),
        "torchaudio/__init__.py": AUDIO,
        "torchaudio/_extension/__init__.py": "",
        "torchaudio/_extension/utils.py": AUDIO_UTILS,
    }.items():
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text(text)
    cpu_fixes.apply(tmp_path)
    return packages


def run(packages, code):
    start = f"import site, sys; site.addsitedir({str(packages)!r})\n"  # what Python does with its own .pth files
    return subprocess.run([sys.executable, "-c", start + code], capture_output=True, text=True, timeout=60, check=False)


def test_nothing_is_imported_at_start_up_and_imports_are_not_held_up_by_garbage_collections(tmp_path):
    names = "'torch' in sys.modules, 'webgym_cpu_hook' in sys.modules"
    result = run(environment(tmp_path), f"import gc; print({names}, gc.get_threshold()[0] > 700)")
    assert result.stdout.split() == ["False", "True", "True"]


def test_torchvision_finds_its_operators_declared_and_torchaudio_does_without_its_compiled_half(tmp_path):
    code = "import torchvision, torchaudio; print(*torchvision.AT_IMPORT, torchaudio.HAS)"
    result = run(environment(tmp_path), code)
    assert result.stdout.split() == ["torchvision::nms", "torchvision::qnms", "False"], result.stderr


@pytest.mark.parametrize("case", [{"cuda": "13.0"}, {"built": True}], ids=["cuda", "working build"])
def test_what_works_is_left_alone(tmp_path, case):
    result = run(environment(tmp_path, **case), "import torchvision; print(torchvision.AT_IMPORT)")
    assert result.stdout.strip() == "[]", result.stderr


def test_where_torch_has_cuda_a_broken_torchaudio_is_told(tmp_path):
    assert "libcudart" in run(environment(tmp_path, cuda="13.0"), "import torchaudio").stderr


def test_a_missing_package_stays_missing(tmp_path):
    packages = environment(tmp_path)
    (packages / "torchvision" / "extension.py").unlink()
    assert "ImportError" in run(packages, "import torchvision").stderr


def test_applying_twice_changes_nothing(tmp_path):
    packages = environment(tmp_path)
    before = {path: path.read_bytes() for path in packages.glob("webgym_*")}
    cpu_fixes.apply(tmp_path)
    assert {path: path.read_bytes() for path in packages.glob("webgym_*")} == before
    assert len(before) == 2


def test_the_cuda_flavour_has_no_fixes_and_a_plain_folder_no_packages(tmp_path):
    assert cpu_fixes.source("cuda") == ""
    with pytest.raises(ValueError, match="not enough values"):
        cpu_fixes.apply(tmp_path)
