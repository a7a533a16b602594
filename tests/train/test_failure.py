"""The cause of a failed training, as torchrun reports it."""

import pytest

from webgym_cli.errors import JobError, PeerLostError
from webgym_cli.train.failure import trainer_error

# Printed by torchrun 2.13 when one of two ranks was killed; the other one is ended, or notices the lost connection.
REPORT = """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
=======================================================
webgym_cli.trainer FAILED
-------------------------------------------------------
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : {other} (pid: 23798)
  traceback : Signal 15 (SIGTERM) received by PID 23798
-------------------------------------------------------
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 23801)
  error_file: <N/A>
  traceback : {traceback}
=======================================================
"""


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGSEGV"])
def test_a_killed_rank_is_the_cause_not_the_connection_that_others_lost(tmp_path, signal):
    log = tmp_path / "train.log"
    report = REPORT.format(other=-15, code=-9, traceback=f"Signal 9 ({signal}) received by PID 23801")
    log.write_text("RuntimeError: Connection closed by peer [127.0.0.1]:5\n" + report)
    error = trainer_error(1, log)
    assert type(error) is JobError
    assert signal in str(error)
    assert ("memory" in str(error)) == (signal == "SIGKILL")


@pytest.mark.parametrize(
    "traceback", ["To enable traceback see: https://pytorch.org/docs", "Signal 6 (SIGABRT) received by PID 23801"]
)
def test_a_rank_that_raised_is_no_killed_one(tmp_path, traceback):
    log = tmp_path / "train.log"
    report = REPORT.format(other=-15, code=1, traceback=traceback)
    log.write_text("RuntimeError: Connection closed by peer [127.0.0.1]:5\n" + report)
    error = trainer_error(1, log)
    assert type(error) is PeerLostError
    assert "Connection closed" in str(error)
