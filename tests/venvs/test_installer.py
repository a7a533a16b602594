"""uv installs from where pip would: pip's own listing of its configuration, a real wheel that was tampered with."""

import hashlib
import os
import subprocess
import sys
import zipfile

import pytest

from webgym_cli.venvs import installer
from webgym_cli.venvs.installer import build_command, build_environ, describe_progress, read_pip_options

OURS = {"UV_INDEX_STRATEGY", "UV_SYSTEM_CERTS", "UV_PYTHON_DOWNLOADS", "UV_NO_PROGRESS"}


@pytest.mark.parametrize(
    ("listing", "variables"),
    [
        ("", {}),
        ("global.index-url='https://one/simple'", {"UV_DEFAULT_INDEX": "https://one/simple"}),
        ("global.extra-index-url='https://one\\nhttps://two'", {"UV_INDEX": "https://one https://two"}),
        (":env:.find-links='/a /b'", {"UV_FIND_LINKS": "/a,/b"}),
        ("global.constraint='/c.txt'", {"UV_CONSTRAINT": "/c.txt"}),
        ("global.cert='/ca.pem'", {"SSL_CERT_FILE": "/ca.pem"}),
        ("global.trusted-host='one two'", {"UV_INSECURE_HOST": "one two"}),
        ("global.proxy='http://p:1'", {"ALL_PROXY": "http://p:1"}),
        ("download.index-url='https://no'", {}),
        ("global.disable-pip-version-check='1'", {}),
    ],
)
def test_pips_configuration_becomes_uvs_variables(listing, variables):
    environ = build_environ(read_pip_options(listing), {})
    assert {name: value for name, value in environ.items() if name not in OURS} == variables


def test_the_environment_wins_over_the_section_and_that_over_the_file():
    places = {":env:": "env", "global": "global", "install": "install"}
    lines = [f"{section}.index-url='https://{name}'" for section, name in places.items()]
    assert read_pip_options("\n".join(lines))["index-url"] == "https://env"
    assert read_pip_options("\n".join(lines[1:]))["index-url"] == "https://install"


def test_uvs_own_variables_win():
    environ = build_environ({"find-links": "/one"}, {"UV_FIND_LINKS": "/two", "UV_INDEX_STRATEGY": "first-index"})
    assert (environ["UV_FIND_LINKS"], environ["UV_INDEX_STRATEGY"]) == ("/two", "first-index")


def test_without_an_index_uv_is_told_so():
    assert "--no-index" in build_command("install", "python", [], {"no-index": "true"})
    assert "--no-index" not in build_command("install", "python", [], {"no-index": "false"})


def test_without_uv_the_environment_is_made_by_venv_and_pip(monkeypatch):
    monkeypatch.setattr(installer, "_find_uv", lambda: None)
    assert build_command("venv", "python3", ["there"], {}) == ["python3", "-m", "venv", "there"]
    command = build_command("install", "there/bin/python", ["-r", "lock"], {})
    assert command[:4] == ["there/bin/python", "-m", "pip", "install"]
    assert command[-2:] == ["-r", "lock"]


def test_uv_is_asked_for_the_newest_version_first_and_downloads_none(monkeypatch, tmp_path):
    uv = tmp_path / "uv"
    uv.write_text('#!/bin/sh\ncase "$*" in *3.13) exit 2 ;; esac\necho "$UV_PYTHON_DOWNLOADS $*"\n')
    uv.chmod(0o755)
    monkeypatch.setattr(installer, "_find_uv", lambda: str(uv))
    words = "never --project / python find --system 3.12"
    assert installer.find_interpreter([(3, 11), (3, 13), (3, 12)]) == words
    assert installer.find_interpreter([(3, 13)]) == ""
    assert build_command("venv", "python3", ["there"], {}) == [
        str(uv),
        "--project",
        "/",
        "venv",
        "--python",
        "python3",
        "there",
    ]
    monkeypatch.setattr(installer, "_find_uv", lambda: None)
    assert installer.find_interpreter([(3, 12)]) == ""


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("Using Python 3.11", ""),
        (
            "Resolved 3 packages in 1s\nDownloading torch (182.5MiB)\n",
            "0 of 3 packages, 0.0 KiB of 182.5 MiB: downloading torch",
        ),
        (
            "Resolved 3 packages in 1s\nDownloading torch (182.0MiB)\n   Building deepspeed==1\n Downloaded torch\n",
            "1 of 3 packages, 182.0 MiB of 182.0 MiB: building deepspeed==1",
        ),
        (
            "Resolved 9 packages in 1s\nDownloading torch (1.5GiB)\nDownloading av (512.0MiB)\n"
            "Downloading x (900.0KiB)\n   Building deepspeed==1\n      Built deepspeed==1\n"
            " Downloaded x\n Downloaded av\n",
            "3 of 9 packages, 512.9 MiB of 2.0 GiB: downloading torch",
        ),
        (
            "Resolved 1 package in 1s\nDownloading x (900KiB)\n Downloaded x\n",
            "1 of 1 packages, 900.0 KiB of 900.0 KiB",
        ),
        ("Resolved 3 packages in 1s\nPrepared 2 packages in 2s\n", "3 of 3 packages: installing"),
    ],
)
def test_progress_says_how_much_is_done_and_what_is_going_on(log, words):
    assert describe_progress(log) == words


@pytest.mark.parametrize("tampered", [False, True])
def test_a_wheel_with_another_hash_is_refused(tmp_path, tampered):
    wheel = tmp_path / "wheels" / "thing-1.0-py3-none-any.whl"
    write_wheel(wheel, "VALUE = 1")
    lock = tmp_path / "role.lock"
    lock.write_text(f"thing==1.0 \\\n    --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    if tampered:
        write_wheel(wheel, "VALUE = 2")
    target = tmp_path / "site"
    # of the user's own project, in whose folder the set-up may be started
    (tmp_path / "pyproject.toml").write_text('[tool.uv]\nrequired-version = "==0.1.0"\n')
    command = [sys.executable, "-I", installer.__file__, "install", sys.executable]
    command += ["--target", str(target), "-r", str(lock)]
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheel.parent), "UV_CACHE_DIR": str(tmp_path / "cache")}
    quiet = {"capture_output": True, "text": True, "timeout": 60, "check": False}
    done = subprocess.run(command, env=os.environ | pip, cwd=tmp_path, **quiet)
    assert (done.returncode != 0) == tampered, done.stderr
    assert (target / "thing.py").exists() != tampered


def write_wheel(path, code):
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("thing.py", code)
        wheel.writestr("thing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
        wheel.writestr("thing-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("thing-1.0.dist-info/RECORD", "")
