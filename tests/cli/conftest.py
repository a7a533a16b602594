import pytest

from tests import forked


@pytest.fixture
def webgym(tmp_path):
    def call(*arguments, **options):
        return forked.webgym(*arguments, cwd=tmp_path, **options)

    return call
