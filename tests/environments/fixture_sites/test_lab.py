import re

import pytest

from tests.environments.fixture_sites.visiting import request
from tests.environments.lab import PAGES

STATUS = {"/captcha": 403, "/error": 500, "/redirect": 302}


@pytest.mark.parametrize("path", PAGES)
async def test_every_page_is_open_to_all(sites, path):
    assert (await request(sites, "GET", "lab.test", f"{path}?seconds=0")).status == STATUS.get(path, 200)
    assert f'href="{path}"' in (await request(sites, "GET", "lab.test", "/")).body


async def test_only_what_is_framed_is_on_the_other_host(sites):
    assert (await request(sites, "GET", "other.test", "/framed")).status == 200
    for path in ("/", "/popup", "/redirect?to=/"):
        assert (await request(sites, "GET", "other.test", path)).status == 404
    assert (await request(sites, "GET", "lab.test", "/nowhere")).status == 404


async def test_pages_with_numbers(sites):
    heavy = await request(sites, "GET", "lab.test", "/heavy?nodes=10000")
    assert 10_000 < len(re.findall(r"<[a-z]", heavy.body)) < 10_050
    assert heavy.body.count("<a ") == 500
    assert "took 0.01 s" in (await request(sites, "GET", "lab.test", "/slow?seconds=0.01")).text
    for path in ("/heavy?nodes=x", "/heavy?nodes=-1", "/heavy?nodes=500001", "/slow?seconds=nan", "/slow?seconds=-1"):
        assert (await request(sites, "GET", "lab.test", path)).status == 400
    assert len((await request(sites, "GET", "lab.test", "/huge-text")).body) > 1_000_000


@pytest.mark.parametrize("target", ["http://10.0.0.1/", "file:///etc/passwd", "/popup"])
async def test_a_redirect_goes_anywhere(sites, target):
    assert (await request(sites, "GET", "lab.test", f"/redirect?to={target}")).location == target
    assert (await request(sites, "GET", "lab.test", "/redirect?to=a%0d%0aSet-Cookie:x")).status == 400


async def test_the_download_is_a_file(sites):
    assert (await request(sites, "GET", "lab.test", "/file.txt")).body == "A downloaded file.\n"


async def test_injections_are_text_of_the_page(sites):
    page = await request(sites, "GET", "lab.test", "/injection")
    for text in ("<image>", "<|im_end|>", "<tool_call>", "reward 1", "Ignore all previous instructions"):
        assert text in page.text
    assert not re.search(r"<image>|<tool_call>|<\|", page.body)
