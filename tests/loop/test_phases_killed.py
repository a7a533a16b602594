"""A curriculum that is killed, at any of its steps: run again it is the uninterrupted one."""

import pytest

from tests.loop.conftest import tell_phases
from tests.loop.curriculum_stages import Killed, Told, planned_instructions, ran, settings_in
from webgym_cli.loop import phases
from webgym_cli.store.checkpoints import version
from webgym_cli.store.metrics import read_events
from webgym_cli.store.run import RunDir

MOMENTS = [
    *("test 0 planned", "test 0 episode 0"),
    *("survey train 0 planned", "survey train 0 episode 2", "judge survey 0 verdict 1"),
    *("train 0 planned", "train 0 episode 1", "judge run 0 verdict 2"),
    *("prepare 0", "training 0", "training 0 published", "test 1 episode 1"),
    *("train 1 planned", "train 1 episode 0", "judge run 1 verdict 0"),
    *("prepare 1", "training 1 published", "test 2 planned"),
]


@pytest.fixture(scope="module")
async def uninterrupted(tmp_path_factory):
    """Settings, the run that they made, and the episodes that were tried."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    settings, whole = settings_in(folder), RunDir(folder / "run")
    with pytest.MonkeyPatch.context() as patch:
        tell_phases(patch)
        await ran(whole, settings)
        return settings, whole, sorted(Told.tried)


@pytest.mark.parametrize("moment", MOMENTS)
async def test_killed_anywhere_and_run_again_it_is_the_uninterrupted_one(run, uninterrupted, monkeypatch, moment):
    settings, whole, tried = uninterrupted
    monkeypatch.setattr(Told, "dies", moment)
    with pytest.raises(Killed, match=moment):
        await ran(run, settings)
    await ran(run, settings)
    assert sorted(Told.tried) == tried, "each episode once"
    for iteration in range(2):
        assert run.new_tasks(iteration).read_bytes() == whole.new_tasks(iteration).read_bytes()
        assert planned_instructions(run, iteration) == planned_instructions(whole, iteration)
    assert version(run) == 2
    for name in ("evaluation", "phase"):
        assert _timeless(run, name) == _timeless(whole, name)


def _timeless(run, name):
    return [event | {"at": None} for event in read_events(run, name)]


async def test_killed_between_the_answers_of_the_model_it_asks_only_the_others(run, tmp_path, monkeypatch):
    settings, put = settings_in(tmp_path), phases.generate_next
    written = []

    async def dying(context, out):
        await put(context, out)
        out.unlink()  # as if it had died before the file was there
        written.append(out)
        raise Killed

    monkeypatch.setattr(phases, "generate_next", dying)
    with pytest.raises(Killed):
        await ran(run, settings)
    monkeypatch.setattr(phases, "generate_next", put)
    await ran(run, settings)
    first, again = read_events(run.survey, "generate")
    assert (first["asked"] > 0, again["asked"], again["calls"]) == (True, 0, 0)
    assert (again["kept"], written) == (3, [run.new_tasks(0)])
