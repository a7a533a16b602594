"""`report`, `view` and `compare` as people and scripts meet them."""

import asyncio
import json
import shutil

import aiohttp
import pytest

from tests.app import call, invoke
from tests.inspect.buffers import fill_run
from tests.report.runs import at, did, note
from webgym_cli.errors import MissingStageError, StoreError, UsageError


@pytest.fixture
def run(tmp_path):
    run_dir = fill_run(tmp_path / "a", *(did(n, "shop", solved=n < 2) for n in range(8)))
    note(run_dir, {"event": "evaluation", "iteration": 0, "seconds": 1800, "at": at(3600)})
    note(run_dir, {"event": "rollout", "iteration": 0, "seconds": 1800, "at": at(7200)})
    return run_dir


@pytest.fixture
def other(tmp_path):
    return fill_run(tmp_path / "b", *(did(n, "shop", solved=True) for n in range(8)))


def test_report_writes_a_page_into_the_run_and_takes_in_what_is_new(run):
    path = run.root / "report.html"
    out, err = call("report", run.root)
    assert out == f"{path}\n"
    assert err == f"{path.stat().st_size / 1e3:.0f} kB, 8 episodes: webgym view shows them\n"
    assert path.read_bytes().startswith(b"<!doctype html>")
    fill_run(run.root, did(20, "shop", solved=True))
    assert "9 episodes" in call("report", run.root)[1]


def test_report_writes_elsewhere_and_gives_the_numbers(run, tmp_path):
    path = tmp_path / "x" / "page.html"
    out, err = call("report", run.root, "--html", path, "--gpus", 8, "--gpu-hour-price", 2.5, "--json")
    record = json.loads(out)
    assert (record["event"], record["page"], record["bytes"]) == ("report", str(path), path.stat().st_size)
    assert record["cost"]["total"] == {"hours": 1.5, "gpu_hours": 12, "cost": 30}
    assert (record["timing"]["idle_seconds"], record["points"][0]["success_rate"]) == (1800, 0.25)
    assert "8 episodes" in err


@pytest.mark.parametrize("there", [True, False])
def test_open_opens_the_page(run, monkeypatch, there):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or there)
    err = call("report", run.root, "--open")[1]
    assert opened == [(run.root / "report.html").as_uri()]
    assert ("no browser" in err) is not there


def test_view_serves_runs_and_folders_of_runs(run, other, monkeypatch):
    async def get(pages):
        async with pages as server, aiohttp.ClientSession() as session:
            return [await (await session.get(server.url + path)).text() for path in ("", "report", "1/report")]

    answers = []
    serve = "webgym_cli.cli.commands.view.serve_pages"
    monkeypatch.setattr(serve, lambda pages, _, *, open_: answers.extend(asyncio.run(get(pages))))
    call("view", run.root)
    assert "8 of 8 episodes" in answers[0] and "webgym report" in answers[1]
    answers.clear()
    assert run.root.parent == other.root.parent
    call("view", run.root.parent)
    assert ("2 runs" in answers[0], "webgym report" in answers[2]) == (True, True)
    with pytest.raises(MissingStageError):
        call("view", run.root.parent / "nothing")


def test_two_runs_are_rows_and_their_newest_versions_are_paired(run, other):
    out, err = call("compare", run.root, other.root)
    lines = [line.split("\t") for line in out.splitlines()]
    rates = {line[1]: line[-1] for line in lines if len(line) == 7}
    assert rates == {str(run.root): "25 % of 8", str(other.root): "100 % of 8"}
    assert ["6", "0", "2", "0", "0", "0.03125"] in lines  # gained, lost, kept, failed, unscored, p
    assert err == ""
    record = json.loads(call("compare", run.root, other.root, "--json")[0])
    assert [of["run"] for of in record["runs"]] == [str(run.root), str(other.root)]
    assert (record["newest"]["counts"]["gained"], record["newest"]["p_value"]) == (6, 0.03125)
    assert "gained" in call("compare", run.root, other.root, "--tasks")[0]


def test_more_runs_are_rows_with_their_seeds_in_groups(run, other, tmp_path):
    third = shutil.copytree(run.root, tmp_path / "third")
    record = json.loads(call("compare", run.root, other.root, third, "--json", "--csv", tmp_path / "study.csv")[0])
    assert [of["run"] for of in record["runs"]] and sum(of["runs"] for of in record["groups"]) == 3
    lines = (tmp_path / "study.csv").read_text().splitlines()
    assert (len(lines), lines[0].split(",")[0]) == (4, "run")
    assert call("compare", run.root, other.root, "--csv", "-")[0].splitlines()[0] == lines[0]
    with pytest.raises(UsageError, match="is named twice"):
        call("compare", run.root, other.root, run.root)
    with pytest.raises(UsageError, match="--csv"):
        call("compare", run.root, 0, 0, "--csv", tmp_path / "study.csv")
    with pytest.raises(UsageError, match="is in the run"):
        call("compare", run.root, other.root, "--csv", run.root / "study.csv")


def test_pages_replace_no_other_file(run, other, tmp_path):
    path = tmp_path / "ab.html"
    for option, name, arguments in (("--html", "report", [run.root]), ("--csv", "compare", [run.root, other.root])):
        for place in (run.provenance, other.metrics, other.root / "report.html"):
            with pytest.raises(UsageError, match="is in the run"):
                call(name, *arguments, option, place)
        path.write_text("mine")
        with pytest.raises(UsageError, match="another file"):
            call(name, *arguments, option, path)
        assert path.read_text() == "mine"
        path.unlink()
        call(name, *arguments, option, path)
        call(name, *arguments, option, path)
    with pytest.raises(UsageError, match="another file"):
        call("report", run.root, "--html", path)
    call("report", run.root, "--html", run.root / "report.html")


def test_runs_without_trajectories_are_said_to_be(tmp_path):
    runs = [fill_run(tmp_path / name) for name in ("a", "b")]
    assert "none is paired" in call("compare", *(run.root for run in runs))[1]
    assert "0 episodes" in call("report", runs[0].root)[1]


def test_a_page_that_cannot_be_written_is_named_and_a_damaged_note_stops_nothing(run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="can't be written"):
        call("report", run.root, "--html", tmp_path / "file" / "page.html")
    run.provenance.write_text("[]")
    call("report", run.root)


@pytest.mark.parametrize("price", ["nan", "inf", "-1", "much"])
def test_a_price_is_a_number(run, price):
    result = invoke("report", run.root, "--gpu-hour-price", price)
    assert (result.exit_code, (run.root / "report.html").exists()) == (2, False)
    assert "--gpu-hour-price" in result.stderr
