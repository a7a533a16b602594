import itertools
import signal
import subprocess
import sys
import time

import pytest

from webgym_cli.errors import Terminated
from webgym_cli.jobs.signals import run_async

PROGRAM = """
import asyncio, atexit, time
from webgym_cli.jobs.signals import interruptible, run_async
from webgym_cli.util import stopping

atexit.register(stopping.ignore_at_exit, None)

async def main():
    try:
        WORK
    finally:
        print("cleaning", flush=True)
        await asyncio.sleep(0.3)
        print("cleaned", flush=True)

try:
    run_async(main())
except BaseException as error:
    print(type(error).__name__, flush=True)
"""
WAITS = 'print("up", flush=True); await asyncio.sleep(600)'
HOLDS_UP = 'with interruptible(): print("up", flush=True); time.sleep(600)'
QUERIES = """with interruptible():
            import duckdb
            connection = duckdb.connect(config={"threads": 1})
            print("up", flush=True)
            connection.execute("SELECT count(*) FROM range(10000000000000) numbers(a) WHERE sin(a) > 2")"""
each_signal = pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGTERM, "Terminated"), (signal.SIGINT, "KeyboardInterrupt")], ids=str
)


def start(code):
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "up\n"
    return process


@each_signal
@pytest.mark.parametrize(("work", "times"), [(HOLDS_UP, 1), (HOLDS_UP, 2), (QUERIES, 1)], ids=["one", "two", "query"])
def test_work_that_holds_up_the_loop_is_broken_into(number, raised, work, times):
    process = start(PROGRAM.replace("WORK", work))
    for _ in range(times):
        process.send_signal(number)
    assert process.communicate(timeout=20)[0].split() == ["cleaning", "cleaned", raised]


@pytest.fixture
def program():
    process = start(PROGRAM.replace("WORK", WAITS))
    yield process
    process.kill()
    process.communicate()


@each_signal
def test_a_signal_unwinds_and_is_told(program, number, raised):
    program.send_signal(number)
    assert program.communicate(timeout=20)[0] == f"cleaning\ncleaned\n{raised}\n"


COMMAND = """
import time
from webgym_cli.cli import main
from webgym_cli.util import stopping

def work():
    try:
        print("up", flush=True)
        time.sleep(600)
    finally:
        print("cleaning", flush=True)
        time.sleep(0.3)
        print("cleaned", flush=True)

main._run = work
main.main()
"""
THREAD = "asyncio.get_running_loop().run_in_executor(None, time.sleep, 1.5); "


@each_signal
@pytest.mark.parametrize("is_command", [False, True])
def test_further_signals_neither_cut_a_clean_up_short_nor_change_how_it_ends(number, raised, is_command):
    process = start(COMMAND if is_command else PROGRAM.replace("WORK", THREAD + WAITS))
    for _ in range(2):
        process.send_signal(number)
    assert process.stdout.readline() == "cleaning\n"
    for further in itertools.cycle((signal.SIGTERM, signal.SIGINT)):  # to the interpreter's end, which resets handlers
        if process.poll() is not None:
            break
        process.send_signal(further)
        time.sleep(0.001)
    status = {"Terminated": 143, "KeyboardInterrupt": 130}[raised] if is_command else 0
    assert (process.stdout.read().split(), process.returncode) == (
        ["cleaned", *(() if is_command else (raised,))],
        status,
    )


@pytest.mark.parametrize(
    ("hangs", "number"),
    [("command", signal.SIGINT), ("loop", signal.SIGTERM), ("swallowed", signal.SIGTERM), ("exit", signal.SIGINT)],
)
def test_a_much_later_signal_ends_a_process_whose_clean_up_hangs(number, hangs):
    code = COMMAND.replace("time.sleep(0.3)", "time.sleep(600)")
    if hangs == "loop":
        code = PROGRAM.replace("WORK", WAITS).replace("asyncio.sleep(0.3)", "asyncio.sleep(600)")
    elif hangs == "swallowed":
        code = code.replace("finally", "except BaseException")
    elif hangs == "exit":
        code = COMMAND.replace("time.sleep(0.3)", "import atexit; atexit.register(time.sleep, 600)")
    process = start(code.replace("import stopping\n", "import stopping\nstopping.GRACE = 2\n"))
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "cleaning\n"
    process.send_signal(number)
    time.sleep(2.5)
    assert process.poll() is None
    process.send_signal(number)
    assert process.wait(20) == 128 + number


@pytest.mark.parametrize("seconds", [0, 0.2])
def test_a_signal_after_the_work_while_a_thread_ends_is_told(seconds):
    process = start(PROGRAM.replace("WORK", f'{THREAD}print("up", flush=True)'))
    assert [process.stdout.readline() for _ in range(2)] == ["cleaning\n", "cleaned\n"]
    time.sleep(seconds)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=20)[0] == "Terminated\n"


def test_a_result_and_an_error_come_through():
    async def gives():
        return 5

    async def fails():
        raise ZeroDivisionError

    assert run_async(gives()) == 5
    with pytest.raises(ZeroDivisionError):
        run_async(fails())


def test_the_handlers_of_the_caller_are_put_back():
    async def nothing():
        pass

    def mine(*_):
        raise Terminated

    before = signal.signal(signal.SIGTERM, mine)
    try:
        run_async(nothing())
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


def test_terminated_is_no_ordinary_error():
    assert not issubclass(Terminated, Exception)
