import pytest

from tests.tables import each
from webgym_cli.errors import SettingsError, UsageError
from webgym_cli.jobs import devices


@each(
    ("value", "wanted"),
    [
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("0", ("0",)),
        ("2, 0", ("2", "0")),
        ("0,1,-1,2", ("0", "1")),
        ("0,1,", ("0", "1")),
        ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,GPU-1a", ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "GPU-1a")),
        ("MIG-GPU-8932f937/1/0", ("MIG-GPU-8932f937/1/0",)),
    ],
)
def test_the_variable_is_read_as_cuda_reads_it(value, wanted):
    assert devices.list_visible({"CUDA_VISIBLE_DEVICES": value}) == wanted


@pytest.fixture
def usable(monkeypatch):
    """Counts the GPUs that can be used with a value of the variable, where so many are present."""

    def count(value, present):
        monkeypatch.setattr(devices, "present", lambda: present)
        return devices.usable({} if value is None else {"CUDA_VISIBLE_DEVICES": value})

    return count


def test_without_the_variable_every_gpu_counts(usable):
    assert devices.list_visible({}) is None
    assert (usable(None, 8), usable(None, 0)) == (8, None)
    assert usable("7", 0) == 1  # on trust where no GPU can be counted


@pytest.mark.parametrize(
    ("value", "wanted"), [("", 0), ("-1", 0), ("3,1", 2), ("GPU-1a,GPU-2b", 2), ("MIG-1a", 1), ("MIG-1a,MIG-2b", 1)]
)
def test_how_many_can_be_used(usable, value, wanted):
    assert usable(value, 4) == wanted


@pytest.mark.parametrize(
    ("value", "words"),
    [("all", "'all' is no GPU"), ("0;1", "no GPU"), ("0,0", "twice"), ("0,4", "no GPU 4, .* numbered from 0 to 3")],
)
def test_what_names_no_gpu_is_refused(usable, value, words):
    with pytest.raises(UsageError, match=words) as caught:
        usable(value, 4)
    assert value in str(caught.value)
    assert "CUDA_VISIBLE_DEVICES" in caught.value.hint


def test_a_setting_that_names_no_gpu_is_named_itself(usable):
    usable(None, 2)
    for chosen, why in ((("9",), "there is no GPU 9, they are numbered from 0 to 1"), (("0", "0"), "twice")):
        with pytest.raises(SettingsError, match=rf"^serve\.gpus: .*{why}") as caught:
            devices.usable_gpus({}, chosen)
        assert caught.value.hint == '-s serve.gpus=["0"]'
    with pytest.raises(UsageError, match=r"^CUDA_VISIBLE_DEVICES=2: there is no GPU 2"):
        devices.usable_gpus({"CUDA_VISIBLE_DEVICES": "2"})


def test_counts_the_devices_of_a_container_before_those_of_the_driver(tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "DEVICES", tmp_path / "dev")
    monkeypatch.setattr(devices, "DRIVER", tmp_path / "proc")
    assert devices.present() == 0
    for number in range(8):
        (tmp_path / f"proc/0000:{number}").mkdir(parents=True)
    assert devices.present() == 8
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm", "nvidia-modeset"):
        (tmp_path / "dev" / name).touch()
    assert devices.present() == 2
