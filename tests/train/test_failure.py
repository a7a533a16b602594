"""The cause of a failed training, as torchrun reports it."""

import pytest

from webgym_cli.errors import JobError, PeerLostError
from webgym_cli.train.trainer_log import trainer_error

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


KILLED, RAISED = "Signal 9 (%s) received by PID 23801", "To enable traceback see: https://pytorch.org/docs"


@pytest.mark.parametrize(
    ("code", "traceback", "kind", "words"),
    [
        (-9, KILLED % "SIGKILL", JobError, "memory"),
        (-9, KILLED % "SIGSEGV", JobError, "SIGSEGV"),
        (1, RAISED, PeerLostError, "Connection closed"),
        (1, "Signal 6 (SIGABRT) received by PID 23801", PeerLostError, "Connection closed"),
    ],
)
def test_a_killed_rank_is_the_cause_not_the_connection_that_others_lost(tmp_path, code, traceback, kind, words):
    log = tmp_path / "train.log"
    report = REPORT.format(other=-15, code=code, traceback=traceback)
    log.write_text("RuntimeError: Connection closed by peer [127.0.0.1]:5\n" + report)
    error = trainer_error(1, log)
    assert type(error) is kind and words in str(error)
    assert ("SIGKILL" in str(error)) == ("memory" in str(error)) == (words == "memory")


@pytest.mark.parametrize(
    "message",
    [
        "loaded state dict contains a parameter group that doesn't match the size of optimizer's group",
        "loaded state dict has a different number of parameter groups",
    ],
)
def test_carried_states_of_other_weights_name_the_setting_that_leaves_them(tmp_path, message):
    log = tmp_path / "train.log"
    log.write_text(f"Traceback (most recent call last):\nValueError: {message}\n")
    assert "-s train.keep_optimizer_state=false" in trainer_error(1, log).hint
