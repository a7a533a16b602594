"""The comparison of expressions: it survives what they can do, and runs nothing that they say."""

import os
import threading
import time

import psutil
import pytest

from webgym_cli.errors import WebGymError
from webgym_cli.scoring import latex, latex_script


@pytest.fixture(scope="module")
def comparer():
    """The rewards' own: each of its processes imports sympy, which takes a second."""
    yield latex._COMPARER
    latex._COMPARER.close()


@pytest.mark.parametrize("text", ["100000!!", "(" * 140 + "1" + ")" * 140, "{" * 300, "$$", "\\frac"])
def test_what_can_not_be_computed_is_not_equal_and_others_are_compared_after_it(comparer, text):
    assert not comparer.is_equal(text, "x+72")
    assert comparer.is_equal("x+1", "1+x")


def test_nothing_that_an_answer_says_is_run(tmp_path, comparer):
    result = tmp_path / "made"
    for text in (f"__import__('os').system('touch {result}')", f"\\text{{open('{result}', 'w')}}", "exec('1')"):
        assert not comparer.is_equal(text, "x")
    assert not result.exists()


def test_it_works_in_threads(comparer):
    calls = []
    ask = [threading.Thread(target=lambda: calls.append(comparer.is_equal("a+b", "b+a"))) for _ in range(8)]
    for thread in ask:
        thread.start()
    for thread in ask:
        thread.join()
    assert calls == [True] * 8


def test_a_process_that_is_killed_or_hangs_gives_no_verdict_and_is_replaced(comparer, monkeypatch):
    comparer.close()
    assert comparer.is_equal("x+1", "1+x")
    comparer._idle[0].kill()
    with pytest.raises(WebGymError, match="was killed"):
        comparer.is_equal("x+1", "1+x")
    assert comparer.is_equal("x+1", "1+x")
    hanging = psutil.Process(comparer._idle[0].pid)
    hanging.suspend()
    monkeypatch.setattr(latex, "ANSWER_SECONDS", 0.5)
    with pytest.raises(WebGymError, match=r"in 0\.5 s"):
        comparer.is_equal("x+1", "1+x")
    assert not hanging.is_running()


def test_what_can_not_be_computed_holds_no_others(comparer):
    ended = []
    hostile = threading.Thread(target=lambda: ended.append(comparer.is_equal("9^{9^{9^{9}}}", "x+72")))
    hostile.start()
    while comparer._slots._value == latex.PROCESSES:
        time.sleep(0.01)
    assert comparer.is_equal("x+1", "1+x")
    hostile.join()
    assert ended == [False]
    assert len(comparer._idle) == 1  # the kernel has ended the other's


def test_a_deadline_leaves_no_answer_for_the_next_question(comparer, monkeypatch):
    assert comparer.is_equal("x+1", "1+x")

    def stop(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(latex.select, "select", stop)  # between the question and its answer
        comparer.is_equal("x", "x")
    assert not comparer.is_equal("x", "y")


def test_a_library_that_is_not_there_is_told(comparer, tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text("raise SystemExit(1)")
    comparer.close()
    monkeypatch.setattr(latex_script, "__file__", os.fspath(tmp_path / "broken.py"))
    with pytest.raises(WebGymError, match="math-verify does not start"):
        comparer.is_equal("x", "x")
