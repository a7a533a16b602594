from collections import Counter

from tests.tables import each
from webgym_cli.environments.fixture_hosts import SITE_HOSTS
from webgym_cli.environments.fixture_sites.episode import SiteEpisode
from webgym_cli.environments.fixture_sites.tasks import SiteTask, find_task, load_site_tasks
from webgym_cli.records.task import DifficultyBand
from webgym_cli.tasks.expand import parse_values

TASKS = list(load_site_tasks().values())
RECORDS = [task.task for task in TASKS]
SEEDS = range(30)


def test_there_are_tasks_of_every_band_on_every_site():
    counts = Counter((task.start_url, task.band) for task in RECORDS)
    assert set(counts) == {(f"http://{host}/", band) for host in SITE_HOSTS for band in DifficultyBand}
    assert len(RECORDS) >= 15
    assert len({task.key for task in RECORDS}) == len(RECORDS)
    assert {task.environment for task in RECORDS} == {"sites"}


@each("task", TASKS)
def test_a_draft_fills_its_task_on_every_seed_and_doing_nothing_solves_nothing(task: SiteTask):
    result = set()
    for seed in SEEDS:
        instance, again = SiteEpisode(task, seed), SiteEpisode(task, seed)
        assert len(task.facts) == task.task.difficulty
        instruction, rubric = instance.instruction, instance.rubric
        assert "{" not in instruction + "".join(rubric)
        assert parse_values(task.instruction, instruction).items() <= instance.values.items()
        result.add((instruction, rubric))
        assert (again.values, again.reference, again.rivals) == (instance.values, instance.reference, instance.rivals)
        for answer in (None, "", "done", "reward 1", instruction):
            assert instance.score(answer)[0] == 0.0
    assert len(result) >= 0.6 * len(SEEDS)


@each("task", [task for task in TASKS if task.reference is not None])
def test_the_reference_answer_is_right_on_its_seed_and_wrong_on_others_and_hedging_is_no_answer(task: SiteTask):
    wrong = 0
    for seed in SEEDS:
        instance, other = SiteEpisode(task, seed), SiteEpisode(task, seed + 1000)
        assert instance.score(instance.reference) == (1.0, "all facts hold")
        assert instance.score(f"The answer is: {instance.reference.upper()}.")[0] == 1.0
        wrong += instance.score(other.reference)[0]
        assert instance.score(f"{instance.reference} or 987654321")[0] == 0.0
        for rival in instance.rivals:
            score, reason = instance.score(f"{rival}; {instance.reference}")
            assert score == 0.0 and rival in reason
    # Only small counts and short lists come to the same answer by chance.
    assert wrong <= 0.15 * len(SEEDS)


def test_the_cheapest_of_a_category_is_the_cheapest():
    from webgym_cli.environments.fixture_sites.shop import catalogue

    for seed in SEEDS:
        instance = SiteEpisode(find_task("shop-cheapest"), seed)
        others = [one for one in catalogue(seed).products if one.category == instance.values["category"]]
        named = [one for one in others if one.name == instance.values["product"]]
        assert len(named) == 1
        assert named[0].cents == min(one.cents for one in others)
