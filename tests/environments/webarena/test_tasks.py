import pytest

from tests.environments.webarena.webarena_records import ADDRESSES, DUMMY, evaluation, record
from tests.tables import each
from webgym_cli.environments.webarena.tasks import evaluation_of, read_config
from webgym_cli.records.task import Task
from webgym_cli.records.webarena import EvalType, UrlRule, WebArenaSite
from webgym_cli.tasks.format import BadTaskError, parse_task


def read(**changes):
    return read_config(record(**changes), ADDRESSES)


def without(*names):
    return {name: item for name, item in record().items() if name not in names}


def scored_by(**changes):
    return evaluation_of(read(eval=evaluation(**changes)))


def test_a_record():
    kept = {name: item for name, item in record().items() if name not in ("task_id", "intent", "start_url")}
    assert read() == Task(
        id="12",
        instruction="Which hat is cheapest?",
        start_url="http://shop.test:7770",
        environment="webarena",
        reference_answer="It is the blue hat.",
        extra={
            **kept,
            "start_urls": ["http://shop.test:7770"],
            "generated": False,
            "site_addresses": {"__SHOPPING__": "http://shop.test:7770"},
        },
    )


def test_a_task_file_gives_it_back():
    task = read(remark={"by": "us"})
    again = parse_task(task.model_dump_json().encode())
    assert (again, again.extra["remark"]) == (task, {"by": "us"})
    assert evaluation_of(again) == evaluation_of(task)


def test_a_task_has_the_same_key_whatever_the_host():
    def read_at(shop, lab, **changes):
        sites = {WebArenaSite.SHOPPING: shop, WebArenaSite.SHOPPING_ADMIN: f"{shop}/admin", WebArenaSite.GITLAB: lab}
        start = "__SHOPPING_ADMIN__/a |AND| __SHOPPING__ |AND| __GITLAB__"
        answers = {"exact_match": "git clone ssh://git@localhost:2222/a/b.git"}
        given = evaluation(reference_answers=answers)
        return read_config(record(start_url=start, intent="Open __GITLAB__/x", eval=given) | changes, sites)

    one, other = (
        read_at("http://shop.test:7770", "http://lab.test:8023"),
        read_at("https://a.example/", "http://10.0.0.1"),
    )
    assert (one.key, parse_task(one.model_dump_json().encode()).key) == (other.key, other.key)
    assert one.start_url != other.start_url
    assert read_at("https://a.example", "http://10.0.0.1", intent="Open it").key != one.key


@pytest.mark.parametrize(
    ("start_url", "tabs"),
    [
        ("__REDDIT__/f/books", ["http://forum.test:9999/f/books"]),
        ("__SHOPPING_ADMIN__", ["http://shop.test:7780/admin"]),
        ("__SHOPPING__/a.html |AND| __MAP__", ["http://shop.test:7770/a.html", "http://map.test:3000"]),
        (" https://example.com/ ", ["https://example.com/"]),
    ],
)
def test_every_tab_has_its_address(start_url, tabs):
    task = read(start_url=start_url)
    assert (task.start_url, task.extra["start_urls"]) == (tabs[0], tabs)


def test_addresses_are_filled_in_everywhere():
    target = {"url": "__GITLAB__/a", "locator": "", "required_contents": {"must_include": ["__WIKIPEDIA__/b"]}}
    task = read(
        intent="Post __REDDIT__/f/nyc",
        eval=evaluation(
            eval_types=["url_match", "program_html"],
            reference_url="__REDDIT__/f/nyc |OR| __MAP__",
            program_html=[target],
            url_note="GOLD in PRED",
        ),
    )
    result = evaluation_of(task)
    assert task.instruction == "Post http://forum.test:9999/f/nyc"
    assert result.reference_url == "http://forum.test:9999/f/nyc |OR| http://map.test:3000"
    assert result.program_html[0].url == "http://lab.test:8023/a"
    assert result.program_html[0].required_contents.must_include == ("http://wiki.test:8888/b",)


def test_a_helpers_marks_and_other_words_stay_and_remarks_are_kept_and_not_read():
    locator = "func:gitlab_get_project_memeber_role(__page__, 'koush')"
    target = {"url": "last", "locator": locator, "required_contents": {"exact_match": "Developer"}}
    remarks = {"annotation_note": "hard", "url_note": None, "string_note": None}
    scoring = evaluation(eval_types=["program_html"], program_html=[target], **remarks)
    task = read(intent="Write __MY_WORD__", eval=scoring)
    assert task.instruction == "Write __MY_WORD__"
    assert evaluation_of(task).program_html[0].locator == locator
    assert task.extra["eval"]["annotation_note"] == "hard"
    assert evaluation_of(task).eval_types == (EvalType.PROGRAM_HTML,)


def test_the_machine_of_the_authors_is_no_part_of_an_answer():
    """Task 71 wants `ssh://git@localhost:2222/...`, whichever host GitLab has."""
    answers = {
        "exact_match": "git clone ssh://git@localhost:2222/a/b.git",
        "must_include": ["ssh://git@old.test:2222/c"],
    }
    reference_answers = scored_by(reference_answers=answers).reference_answers
    assert reference_answers.exact_match == "git clone ssh://git@lab.test:2222/a/b.git"
    assert reference_answers.must_include == ("ssh://git@lab.test:2222/c",)


@each(
    ("answers", "rules"),
    [
        ({"exact_match": "Yes"}, {"exact_match": "Yes"}),
        ({"must_include": ["a", "b |OR| c"]}, {"must_include": ("a", "b |OR| c")}),
        ({"must_include": "yjlou"}, {"must_include": ("yjlou",)}),
        ({"must_exclude": ["a"]}, {"must_exclude": ("a",)}),
        ({"one_of": ["a", "b"]}, {"one_of": ("a", "b")}),
        ({"required_values": [">= 3"]}, {"required_values": (">= 3",)}),
        ({"fuzzy_match": "N/A"}, {"fuzzy_match": ("N/A",)}),
        ({"fuzzy_match": ["N/A"]}, {"fuzzy_match": ("N/A",)}),
        ({"fuzzy_match": ["a", "b"], "exact_match": None}, {"fuzzy_match": ("a", "b")}),
    ],
)
def test_every_shape_of_an_answer(answers, rules):
    assert scored_by(reference_answers=answers).reference_answers.model_dump(exclude_none=True) == rules


@pytest.mark.parametrize("answers", [None, "", {}, {"exact_match": None}])
def test_answers_may_be_missing_where_none_is_looked_at(answers):
    scored = scored_by(eval_types=["url_match"], reference_url="__MAP__", reference_answers=answers, program_html=None)
    assert (scored.reference_answers, scored.program_html, scored.url_note) == (None, (), UrlRule.GOLD_IN_PRED)


@pytest.mark.parametrize(
    ("note", "more", "rule"),
    [
        (None, {}, UrlRule.GOLD_IN_PRED),  # WebArena's own 812 tasks
        ("EXACT", {}, UrlRule.EXACT),
        (None, {"old_task_id": 7}, UrlRule.EXACT),  # WebRL's 165
        ("GOLD in PRED", {"old_task_id": 7}, UrlRule.GOLD_IN_PRED),
    ],
)
def test_a_missing_rule_for_addresses_is_that_of_the_tasks_authors(note, more, rule):
    given = evaluation(eval_types=["url_match"], reference_url="__MAP__", url_note=note)
    assert evaluation_of(read(eval=given, **more)).url_note is rule


@pytest.mark.parametrize(
    ("sites", "state"),
    [
        (["reddit"], "reddit"),
        (["reddit", "gitlab"], "gitlab.reddit"),
        (["map", "shopping"], "shopping"),
        (["map"], None),
    ],
)
def test_a_record_that_says_nothing_of_logins_has_those_of_its_sites(sites, state):
    given = {"intent": "Do it", "sites": sites, "start_url": "http://shop.test:7770"}
    extra = read_config(given, ADDRESSES).extra
    assert extra.get("storage_state") == (state and f"./.auth/{state}_state.json")
    assert bool(extra.get("require_login")) == (state is not None)
    assert "storage_state" not in read_config({**given, "require_login": False}, ADDRESSES).extra


@each("given", [DUMMY, None])
def test_a_generated_task_has_no_score_of_its_own(given):
    task = read(eval=given, intent_template="", instantiation_dict={})
    assert (task.extra["generated"], task.reference_answer, evaluation_of(task)) == (True, None, None)
    impossible = read(eval={**DUMMY, "string_note": "There is none"})  # it says why
    assert impossible.extra["generated"] is False
    assert evaluation_of(impossible).reference_answers.exact_match == "N/A"


@pytest.mark.parametrize(
    ("web", "site", "start", "state"),
    [
        ("cms", "shopping_admin", "http://shop.test:7780/admin", "./.auth/shopping_admin_state.json"),
        ("oss", "shopping", "http://shop.test:7770", "./.auth/shopping_state.json"),
        ("gitlab", "gitlab", "http://lab.test:8023", "./.auth/gitlab_state.json"),
        ("map", "map", "http://map.test:3000", None),
    ],
)
def test_a_generated_instruction(web, site, start, state):
    task = read_config({"task": "Do it", "web": web, "seed": "x"}, ADDRESSES)
    assert (task.instruction, task.start_url, task.environment) == ("Do it", start, "webarena")
    assert len(task.id) == 16
    placeholder = WebArenaSite(site).placeholder
    assert task.extra == {
        "site_addresses": {placeholder: ADDRESSES[site].rstrip("/")},
        "sites": [site],
        "require_login": state is not None,
        "storage_state": state,
        "seed": "x",
        "start_urls": [start],
        "generated": True,
    }


def test_without_a_number_the_id_is_of_the_content():
    ids = {
        read_config(value, ADDRESSES).id
        for value in (without("task_id"), without("task_id"), {**record(), "task_id": None})
    }
    assert len(ids) == 2
    assert {len(each) for each in ids} == {16}


def scored(**changes):
    return record(eval=evaluation(**changes))


def by_url(**changes):
    return scored(eval_types=["url_match"], **{"reference_url": "__MAP__", **changes})


def by_page(**changes):
    return scored(
        eval_types=["program_html"],
        program_html=[{"url": "last", "locator": "", "required_contents": {"exact_match": "a"}, **changes}],
    )


BAD = {
    "no intent": (without("intent"), "intent: "),
    "a blank intent": (record(intent=" "), "intent: "),
    "no sites": (record(sites=[]), "sites: "),
    "an unknown site": (record(sites=["shopping", "shop"]), "sites.1: "),
    "a truth as number": (record(task_id=True), "task_id: "),
    "a list as number": (record(task_id=[1]), "task_id: "),
    "no start": (without("start_url"), "start_url: "),
    "a start that is no address": (record(start_url="shop"), "start_url: 'shop' is no address"),
    "an empty tab": (record(start_url="__MAP__ |AND| "), "start_url: '' is no address"),
    "an unknown placeholder": (record(start_url="__BANK__"), "start_url: '__BANK__' is no address"),
    "a site without an address": (record(start_url="__HOMEPAGE__"), "start_url: the address of __HOMEPAGE__"),
    "no place on earth": (record(geolocation={"latitude": 91, "longitude": 0}), "geolocation.latitude: "),
    "half a place": (record(geolocation={"latitude": 9}), "geolocation.longitude: "),
    "an unknown type": (scored(eval_types=["page_image_query"]), "eval.eval_types.0: "),
    "no type": (scored(eval_types=[]), "eval.eval_types: "),
    "an unknown rule": (scored(reference_answers={"regex": "a"}), "eval.reference_answers.regex: "),
    "no rule": (scored(reference_answers={"exact_match": None}), "eval: string_match needs reference_answers"),
    "an empty list": (scored(reference_answers={"must_include": []}), "eval.reference_answers: must_include: "),
    "an empty alternative": (
        scored(reference_answers={"must_include": ["a |OR| "]}),
        "eval.reference_answers: must_include: ",
    ),
    "no wanted address": (by_url(reference_url=""), "eval: url_match needs reference_url"),
    "an empty wanted address": (by_url(reference_url="__MAP__ |OR| "), "eval: reference_url: "),
    "two addresses at once": (by_url(reference_url="__MAP__ |AND| __REDDIT__"), "eval: reference_url: "),
    "a wanted address that is none": (by_url(reference_url="the cart"), "eval.reference_url: 'the cart'"),
    "an unknown rule for addresses": (by_url(url_note="PRED in GOLD"), "eval.url_note: "),
    "no page": (scored(eval_types=["program_html"]), "eval: program_html needs program_html"),
    "an unknown locator": (by_page(locator="#x"), "eval.program_html.0: locator: '#x'"),
    "a field too many in a place": (by_page(image="x"), "eval.program_html.0.image: "),
    "a generated one elsewhere": ({"task": "Do it", "web": "bank"}, "web: 'bank' is none of cms, oss"),
    "a generated one without text": ({"task": " ", "web": "map"}, "intent: "),
    "infinity": (record(weight=float("inf")), "the record can't be stored"),
    "half a character": (record(intent="\ud800"), "the record can't be stored"),
}


@each(("value", "reason"), BAD.values())
def test_a_bad_record_names_its_field(value, reason):
    with pytest.raises(BadTaskError) as raised:
        read_config(value, ADDRESSES)
    assert str(raised.value).startswith(reason)


def test_what_is_missing_is_said_with_its_remedy():
    with pytest.raises(BadTaskError) as raised:
        read_config(record(start_url="__GITLAB__"), {WebArenaSite.SHOPPING: "http://shop.test"})
    assert raised.value.advice == "--site gitlab=http://HOST:PORT"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"eval_types": []}, "eval.eval_types"),
        (evaluation(reference_answers={"required_values": ["?"]}), "eval.reference"),
    ],
)
def test_a_task_file_with_a_bad_evaluation_is_no_score(given, reason):
    with pytest.raises(BadTaskError, match=reason):
        evaluation_of(Task(id="1", environment="webarena", extra={"eval": given}))
