import pytest

from webgym_cli.environments.webarena.evaluation import url_matches
from webgym_cli.records.webarena import UrlRule

LAB = "http://lab.test:8023"
ISSUE = f"{LAB}/a/b/-/issues/8"

EXACT = [
    (ISSUE, ISSUE, True),
    (f"{ISSUE}/", ISSUE, True),
    (ISSUE, f"{ISSUE}/", True),
    (f"{ISSUE}9", ISSUE, False),
    (f"{ISSUE}?x=1", ISSUE, False),
    (f"{ISSUE}?b=2&a=1", f"{ISSUE}?a=1&b=2", True),
    (f"{ISSUE}#note_1", ISSUE, False),
    (ISSUE, f"{LAB}/x |OR| {ISSUE}", True),
    ("http://localhost:8023/a", "http://127.0.0.1:8023/a", True),
    ("http://lab.test/a", "http://lab.test:80/a", True),
    ("http://lab.test/a", "http://lab.test:8023/a", False),
]

LEADS = [
    ("https://lab.test:8023/a", f"{LAB}/a", True),
    ("https://lab.test/a", "http://lab.test:80/a", True),
    ("https://lab.test/a", "http://lab.test:8023/a", False),
    (f"{ISSUE};jsessionid=1A", ISSUE, True),
    (f"{ISSUE}//", ISSUE, True),
    (f"{LAB}/issues?state=opened/", f"{LAB}/issues?state=opened", True),
    (f"{LAB}/issues?state=opened", f"{LAB}/issues?state=opened&label=", True),
    (f"{LAB}/issues?label=x", f"{LAB}/issues?state=opened&label=", False),
    (ISSUE, ISSUE, True),
    (f"{ISSUE}/designs", ISSUE, True),
    (f"{ISSUE}?x=1#note_1", ISSUE, True),
    (f"{LAB}/a", LAB, True),
    (LAB, f"{LAB}/a", False),
    (f"{LAB}/issues/?state=opened&sort=created_asc&page=2", f"{LAB}/issues?sort=created_asc&state=opened", True),
    (f"{LAB}/issues/?state=opened", f"{LAB}/issues/?sort=created_asc&state=opened", False),
    (f"{LAB}/issues/?state=closed", f"{LAB}/issues/?state=opened", False),
    (f"{LAB}/issues/?label_name[]=bug", f"{LAB}/issues/?label_name%5B%5D=bug", True),
    (f"{LAB}/i?l=a&l=b", f"{LAB}/i?l=b", True),
    (f"{LAB}/i?l=b", f"{LAB}/i?l=a&l=b", False),
    (f"{LAB}/search?q=usb+wifi", f"{LAB}/search?q=usb%20wifi", True),
    (f"{LAB}/f/nyc", f"{LAB}/f/books |OR| {LAB}/f/nyc", True),
    (f"{LAB}/f/funny", f"{LAB}/f/books |OR| {LAB}/f/nyc", False),
    ("http://other.test/?to=http://lab.test:8023/f/nyc", f"{LAB}/f/nyc", False),
    ("http://localhost:8023/f/nyc/7", "http://127.0.0.1:8023/f/nyc", True),
    # another page whose name begins alike; a host is no word
    (f"{LAB}/f/bookshelf", f"{LAB}/f/books", False),
    (f"{ISSUE}1", ISSUE, False),
    (f"{LAB}/wiki/127.0.0.1", f"{LAB}/wiki/localhost", False),
    ("about:blank", LAB, False),
    ("http://[half", LAB, False),
    ("http://lab.test:99999/", LAB, False),
]


@pytest.mark.parametrize(("address", "wanted", "good"), EXACT)
def test_an_address_is_the_wanted_one(address, wanted, good):
    assert url_matches(address, wanted, UrlRule.EXACT) is good


@pytest.mark.parametrize(("address", "wanted", "good"), LEADS)
def test_an_address_lies_at_or_below_the_wanted_one(address, wanted, good):
    assert url_matches(address, wanted, UrlRule.GOLD_IN_PRED) is good
