import asyncio
import os
import re
import shutil
import signal
from pathlib import Path

import psutil
import pytest

from webgym_cli.errors import BoundaryError
from webgym_cli.tools import python as module
from webgym_cli.tools import sandbox, sandbox_script, syscall_filter
from webgym_cli.tools.python import CPU_SECONDS, OUTPUT, python, run_code

DENIED = "Operation not permitted"


def children():
    return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.mark.parametrize(
    ("code", "printed"),
    {
        "1 + 1": "2",
        "x = 3\nx ** 2": "9",
        "print('a')\nNone": "a",
        "'text'": "'text'",
        "": "(no output)",
        "import sys; sys.exit(3)": "(no output)",
        "import statistics; statistics.mean([1, 2, 6])": "3",
        "import sys; print('b', file=sys.stderr)": "b",
        "import threading\nt = threading.Thread(target=print, args=('thread',))\nt.start()\nt.join()": "thread",
        "'\\ud83d'": "'\\ud83d'",
        # nothing that code prints pretends that there was no sandbox
        "import os, sys; sys.stderr.write('no sandbox'); sys.stderr.flush(); os._exit(1)": "no sandbox",
    }.items(),
)
async def test_code_is_run(code, printed):
    assert await run_code(code) == printed


async def test_an_error_is_shown_with_the_codes_own_lines():
    assert await run_code("def f():\n    return 1 / 0\nprint('so far')\nf()") == (
        "so far\nTraceback (most recent call last):\n"
        '  File "<code>", line 4, in <module>\n  File "<code>", line 2, in f\nZeroDivisionError: division by zero'
    )
    assert "SyntaxError" in await run_code("1 +")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import socket; socket.socket()", DENIED),
        ("import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))", "rror"),
        ("x = [0] * 10**9", "MemoryError"),
        ("import webgym_cli", "ModuleNotFoundError"),
        ("import pydantic", "ModuleNotFoundError"),
    ],
)
async def test_the_code_reaches_next_to_nothing(code, reason):
    assert reason in await run_code(code)


async def test_computing_is_limited_by_time(monkeypatch):
    monkeypatch.setattr(module, "CPU_SECONDS", 1)
    assert await run_code("while True: pass") == "[stopped: more than 1 s of computing]"


@pytest.mark.parametrize("code", ["while True: print('x' * 99)", "import os\nwhile True: os.write(1, b'x' * 2**16)"])
async def test_output_is_limited(code):
    async with asyncio.timeout(60):
        result = await run_code(code)
    assert result.endswith(f"[stopped: more than {OUTPUT} bytes of output]")
    assert len(result) < OUTPUT + 100


async def test_waiting_is_limited_by_time_whatever_signals_are_ignored():
    code = "import signal\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\nprint('a', flush=True)"
    assert await run_code(f"{code}\nwhile True: signal.pause()", wall_seconds=3) == "a\n[stopped after 3 s]"


async def test_no_process_is_left_by_a_cancelled_call():
    before = children()
    call = asyncio.create_task(run_code("import time; time.sleep(60)"))
    async with asyncio.timeout(20):
        while not children() - before:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert children() == before


async def test_the_code_dies_with_the_process_that_asked(tmp_path):
    script = (
        "import asyncio, os, sys\nfrom webgym_cli.tools.python import run_code\n"
        "print(os.getpid(), flush=True)\nasyncio.run(run_code('import time; time.sleep(600)', wall_seconds=600))\n"
    )
    process = await asyncio.create_subprocess_exec(
        __import__("sys").executable, "-c", script, stdout=asyncio.subprocess.PIPE
    )
    await process.stdout.readline()
    asking = psutil.Process(process.pid)
    async with asyncio.timeout(30):
        while not (processes := asking.children()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    result, alive = await asyncio.to_thread(psutil.wait_procs, processes, 20)
    assert result
    assert not alive


@pytest.fixture(params=[("PR_SET_SECCOMP, 77,", "can't be switched on"), ("PR_SET_DUMPABLE, 0,", "has no effect")])
def missing(request, monkeypatch, tmp_path):
    for part in (sandbox, sandbox_script):
        source = Path(part.__file__).read_text().replace("PR_SET_SECCOMP, 2,", request.param[0])
        (tmp_path / Path(part.__file__).name).write_text(source)
    monkeypatch.setattr(sandbox_script, "__file__", str(tmp_path / "sandbox_script.py"))
    return request.param[1]


async def test_nothing_is_run_without_a_sandbox_or_a_filter(missing, monkeypatch):
    with pytest.raises(BoundaryError, match=f"the tool python has no sandbox on this machine: seccomp {missing}"):
        await run_code("print('run all the same')")
    with monkeypatch.context() as patch, pytest.raises(BoundaryError, match=r"machine: .*No such file"):
        patch.setattr(module, "_interpreter", lambda: "/nowhere/python")  # as where no process can be started
        await run_code("print('run all the same')")
    monkeypatch.setattr(module.platform, "machine", lambda: "riscv64")
    with pytest.raises(BoundaryError, match="no system call filter is known for riscv64"):
        await run_code("print('run all the same')")


@pytest.mark.parametrize(
    ("column", "header"),
    [(1, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), (2, "/usr/include/asm-generic/unistd.h")],
)
def test_the_filter_names_the_calls_by_their_numbers(column, header):
    if not Path(header).is_file():
        pytest.skip("no header to compare with")
    pattern = re.compile(r"#define __NR(?:3264)?_(\w+)\s+(\d+)")
    known = {name: int(number) for name, number in pattern.findall(Path(header).read_text())}
    known.setdefault("newfstatat", known.get("fstatat"))
    table = syscall_filter.ALWAYS + syscall_filter.READ + syscall_filter.WRITE
    allowed = syscall_filter.syscall_numbers(table, column)
    assert {name: number for name, number in allowed.items() if known[name] != number} == {}
    assert not {"socket", "execve", "fork", "ptrace", "io_uring_setup", "prctl", "ioctl", "kill"} & allowed.keys()


async def test_numpy_runs_where_it_is_installed():
    pytest.importorskip("numpy")
    assert await run_code("import numpy as np\nfloat(np.linalg.det(np.eye(300) * 1.0))") == "1.0"


async def test_a_package_below_tmp_is_not_covered_by_the_scratch_folder(monkeypatch, tmp_path):
    package = tmp_path / "below"
    package.mkdir()
    (package / "__init__.py").write_text("VALUE = 42")
    monkeypatch.setattr(module, "_package_folders", lambda: {"below": str(package)})
    printed = await run_code(f"import below\nprint(below.VALUE)\nopen({str(package / 'mine')!r}, 'w')")
    assert printed.startswith("42\n") and "Error" in printed
    assert [path.name for path in package.iterdir() if path.name != "__pycache__"] == ["__init__.py"]


async def test_an_interpreter_below_tmp_runs(monkeypatch, tmp_path):
    library = Path(os.__file__).parent
    unneeded = shutil.ignore_patterns("site-packages", "dist-packages", "test", "idlelib", "__pycache__", "config-*")
    shutil.copytree(library, tmp_path / "lib" / library.name, ignore=unneeded)
    interpreter = tmp_path / "bin" / "python"
    interpreter.parent.mkdir()
    shutil.copy(module._interpreter(), interpreter)
    monkeypatch.setattr(module, "_interpreter", lambda: str(interpreter))
    monkeypatch.setattr(module, "_package_folders", dict)
    assert await run_code("import decimal, os\nos.__file__") == repr(str(tmp_path / "lib" / library.name / "os.py"))


def test_the_tool_is_told_to_the_policy():
    assert python.schema["function"]["parameters"]["required"] == ["code"]
    assert python.timeout > module.WALL_SECONDS > CPU_SECONDS
