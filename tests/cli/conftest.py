from functools import partial

import pytest

from tests import forked
from tests.environments.webarena.webarena_mail import MailServer
from tests.executable import needs_chromium


@pytest.fixture
def webgym(tmp_path):
    return partial(forked.webgym, cwd=tmp_path)


@pytest.fixture(scope="session")
def chromium():
    needs_chromium()


@pytest.fixture
async def mail():
    async with MailServer() as server:
        yield server
