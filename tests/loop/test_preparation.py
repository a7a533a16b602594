"""What an iteration's training is made of, by the algorithm; written once, unless it is asked for again."""

import asyncio
from dataclasses import dataclass, field

import pytest

from tests.prepare.actor_server import ActorServer
from tests.prepare.rl_builders import episode, line_of, served, settings, store, talk, write_plan
from tests.prepare.webrl_builders import POLICY, demonstrations, experience, second_phase
from tests.records.builders import UNSOLVED, new_run
from webgym_cli.agent.client.gate import ServedPolicy
from webgym_cli.agent.tokens.tokens import ModelTokens
from webgym_cli.errors import JobError, MissingStageError, SettingsError
from webgym_cli.loop import preparation
from webgym_cli.loop.context import StageContext
from webgym_cli.loop.preparation import format_preparation, plan_preparation
from webgym_cli.loop.serving import Serving
from webgym_cli.prepare.rl.plan import RlPlan
from webgym_cli.prepare.sft.plan import PreparePlan
from webgym_cli.records.batch import BatchSelection
from webgym_cli.store.checkpoints import algorithm
from webgym_cli.store.index.query import open_index
from webgym_cli.store.metrics import measure_ends, read_events
from webgym_cli.store.run import RunDir

CHAINS, GRPO, SHOWN = "agent.num_chains=2", "train.algorithm=grpo", "loop.demonstration_iterations=1"


@dataclass
class Servers:
    """The policy's servers: at these addresses, or none that may be started."""

    base_urls: tuple[str, ...] = ()
    starts: int = 0
    error: Exception | None = None
    """How they end while they are watched."""
    policy: ServedPolicy = field(default_factory=ServedPolicy)

    async def current(self):
        assert self.base_urls, "no server is needed"
        self.starts += 1
        return self.base_urls

    async def watch(self):
        if self.error:
            raise self.error
        await asyncio.Event().wait()


nobody = Servers()


async def prepare(run, settings, sink, servers, *, again):
    """Prepare with these servers; return the record, and whether it was written now."""
    written = len(list(read_events(run, "prepare")))
    prepared_record = await preparation.prepare(StageContext(run, settings, run.logs, sink, servers), again=again)
    return prepared_record, len(list(read_events(run, "prepare"))) > written


@pytest.fixture
def run(tmp_path, model):
    """A group of two episodes: one solved its task."""
    run, tokens = new_run(tmp_path / "run"), ModelTokens(str(model))
    write_plan(run, *(episode(number, "q") for number in range(2)))
    store(run, served(talk(0), tokens), served(talk(1, outcome=UNSOLVED), tokens))
    return run


def test_the_algorithm_decides_what_is_planned_and_demonstrations_are_imitated_whatever_it_is(run, model):
    for more, name in (((), "sft"), ((GRPO,), "grpo"), ((GRPO, SHOWN), "sft")):
        assert algorithm(run, settings(model, *more)) == name
    with open_index(run) as index:
        assert isinstance(plan_preparation(run, settings(model, CHAINS, GRPO), index), RlPlan)
        assert isinstance(plan_preparation(run, settings(model, CHAINS), index), PreparePlan)


async def test_a_batch_is_written_once_unless_something_about_it_changed(run, model, monkeypatch):
    with_ = settings(model, CHAINS, GRPO)
    events, checked = [], []

    async def check(run, *others):
        checked.append(len(list(read_events(run, "prepare"))))

    monkeypatch.setattr(preparation, "check_prepared", check)
    first, fresh = await prepare(run, with_, events.append, nobody, again=False)
    assert (fresh, first.trained, first.rows) == (True, 2, 2)
    text = f"2 trajectories in 2 rows, {first.trained_tokens} trained tokens in {run.rl_data}"
    assert format_preparation(first, run, with_) == text
    assert [event["event"] for event in events][-1] == "rl_data"
    assert await prepare(run, with_, events.append, nobody, again=False) == (first, False)
    run.metrics.unlink()  # as if a signal had come before its event
    assert [(await prepare(run, with_, events.append, nobody, again=False))[1] for _ in range(2)] == [True, False]
    assert (await prepare(run, with_, events.append, nobody, again=True))[1]  # even within the same second
    with_ = settings(model, CHAINS, GRPO, "rl.data.merge_turns=false")
    apart, fresh = await prepare(run, with_, events.append, nobody, again=False)
    assert (fresh, apart.rows) == (True, 4)
    assert checked == [1, 1, 2, 3]
    assert apart.plan_digest != first.plan_digest


async def test_a_selection_is_written_and_noted_once(run, model):
    context = StageContext(run, settings(model, CHAINS, GRPO), run.logs, lambda event: None, nobody)
    ids = frozenset(f"train-0000-0000{number}" for number in range(2))
    selection = BatchSelection(iterations=(0,), trajectories=ids, as_of=measure_ends(run, (0,)), episodes=2)
    times = []
    for _ in range(2):
        assert (await preparation.prepare_selection(context, selection)).rows == 2
        times.append((run.rl_data / "rl.json").stat().st_mtime_ns)
    assert (times[0], len(list(read_events(run, "prepare")))) == (times[1], 1)


async def test_without_episodes_the_next_command_is_named(tmp_path, model):
    with pytest.raises(MissingStageError) as caught:
        await prepare(RunDir(tmp_path / "empty"), settings(model, GRPO), lambda event: None, nobody, again=False)
    assert caught.value.hint == f"webgym rollout {tmp_path / 'empty'}"


@pytest.fixture
async def server():
    async with ActorServer() as running:
        running.usual = -0.3
        yield running


@pytest.fixture
def shown(tmp_path, model):
    return demonstrations(RunDir(tmp_path / "shown"), model)


async def test_experience_of_two_runs_is_scored_by_the_policy_s_server(tmp_path, model, shown, server):
    run, events, served = RunDir(tmp_path / "second"), [], Servers((server.base_url,))
    with_ = second_phase(run, model, experience(shown))
    prepared, fresh = await prepare(run, with_, events.append, served, again=False)
    assert (fresh, prepared.policy, prepared.current_rows, prepared.replayed_rows) == (True, POLICY, 4, 7)
    assert (len(server.requests), served.starts) == (7, 1)
    rows = [row for row in line_of(run.rl_data / "rows.jsonl") if row["replayed"]]
    assert sorted(server.requests) == sorted(row["input_ids"] for row in rows)
    assert format_preparation(prepared, run, with_).startswith("5 trajectories in 11 rows (7 of them replayed), ")
    result = [event for event in events if event["event"] == "replay_progress"]
    assert [(event["done"], event["total"]) for event in result] == [(1, 3), (2, 3), (3, 3)]
    assert await prepare(run, with_, events.append, nobody, again=False) == (prepared, False)
    again, _ = await prepare(run, with_, events.append, nobody, again=True)  # all is known
    assert again.digest == prepared.digest


async def test_a_server_that_dies_while_it_scores_ends_the_preparation(tmp_path, model, shown):
    run = RunDir(tmp_path / "second")
    with_ = second_phase(run, model, experience(shown))

    async def hang(reader, writer):  # until the client leaves; from Python 3.12 on, the server's end waits for this one
        await reader.read()
        writer.close()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as silent:
        port = silent.sockets[0].getsockname()[1]
        dies = Servers((f"http://127.0.0.1:{port}/v1",), error=JobError("vLLM has answered no request for 60 s"))
        with pytest.raises(JobError, match="answered no request"):
            await asyncio.wait_for(prepare(run, with_, lambda event: None, dies, again=False), 30)


@pytest.mark.parametrize("adapter", ["", "policy-v1"])
async def test_in_a_run_the_server_of_its_policy_is_asked(tmp_path, model, shown, server, monkeypatch, adapter):
    run, events = RunDir(tmp_path / "second"), []
    with_ = second_phase(run, model, experience(shown))

    async def current(serving):
        assert serving.run == run
        serving.policy = ServedPolicy(model=adapter)
        return (server.base_url,)

    monkeypatch.setattr(Serving, "current", current)
    async with StageContext(run, with_, tmp_path, events.append) as context:
        prepared_record = await preparation.prepare(context)
    assert (len(server.requests), prepared_record.replayed_rows) == (7, 7)
    assert server.models == {adapter or "policy"}
    (noted,) = read_events(run, "prepare")
    assert (noted["current_rows"], noted["replayed_rows"]) == (4, 7)


async def test_an_address_that_is_none_is_refused_first(tmp_path, model):
    with_ = second_phase(run := RunDir(tmp_path / "second"), model, "rl.replay.base_url=here")
    with pytest.raises(SettingsError, match=r"rl\.replay\.base_url: 'here'"):
        await prepare(run, with_, lambda event: None, nobody, again=False)
