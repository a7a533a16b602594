import pytest

from webgym_cli.errors import UsageError
from webgym_cli.jobs import devices


@pytest.mark.parametrize(
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


def test_without_the_variable_every_gpu_counts():
    assert devices.list_visible({}) is None
    assert devices.usable({}, 8) == 8
    assert devices.usable({}, 0) is None


@pytest.mark.parametrize(
    ("value", "wanted"), [("", 0), ("-1", 0), ("3,1", 2), ("GPU-1a,GPU-2b", 2), ("MIG-1a", 1), ("MIG-1a,MIG-2b", 1)]
)
def test_how_many_can_be_used(value, wanted):
    assert devices.usable({"CUDA_VISIBLE_DEVICES": value}, 4) == wanted


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("all", "'all' is no GPU"),
        ("0;1", "no GPU"),
        ("0,0", "twice"),
        ("0,4", "no GPU 4, they are numbered from 0 to 3"),
    ],
)
def test_what_names_no_gpu_is_refused(value, words):
    with pytest.raises(UsageError, match=words) as caught:
        devices.usable({"CUDA_VISIBLE_DEVICES": value}, 4)
    assert value in str(caught.value) and "CUDA_VISIBLE_DEVICES" in caught.value.hint


def test_a_number_is_taken_on_trust_where_no_gpu_can_be_counted():
    assert devices.usable({"CUDA_VISIBLE_DEVICES": "7"}, 0) == 1


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
