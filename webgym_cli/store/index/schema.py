"""The tables of the index: what a reader can ask of the buffer without opening a trajectory. Pure."""

from __future__ import annotations

import pyarrow as pa

# Version of the tables; an index of another version is built anew.
FORMAT = 5

# UTC, without a zone: DuckDB's Python needs another library for the zone.
MOMENT = pa.timestamp("us")

# The fields of `records.sampling.Sampling`.
SAMPLING = pa.struct(
    [
        ("temperature", pa.float64()),
        ("top_k", pa.int32()),
        ("top_p", pa.float64()),
        ("min_p", pa.float64()),
        ("logprobs", pa.string()),
    ]
)

# Where a line stands, so that it alone is read.
PLACE = [
    pa.field("file", pa.string()),  # the append-only file, relative to the run
    pa.field("start", pa.int64()),  # first byte of the line
    pa.field("size", pa.int64()),  # bytes of the line without its end
]

# One row a stored trajectory, as it was written.
TRAJECTORIES = pa.schema(
    [
        ("id", pa.string()),
        ("episode", pa.string()),
        ("split", pa.string()),
        ("iteration", pa.int32()),
        ("attempt", pa.int32()),
        ("task", pa.string()),  # the task's id
        ("task_key", pa.string()),  # hash of the task's content: equal tasks are equal in every run
        ("environment", pa.string()),
        ("site", pa.string()),  # registrable domain of the start address, else the environment's name
        ("band", pa.string()),
        ("difficulty", pa.int32()),
        ("instruction", pa.string()),
        ("seed", pa.int64()),
        ("policy", pa.string()),
        ("sampling", SAMPLING),  # what its tokens were sampled from; null where nobody told
        ("prompt_version", pa.string()),
        ("interaction_mode", pa.string()),
        ("steps", pa.int32()),
        ("reward", pa.float64()),
        ("success_threshold", pa.float64()),  # the smallest reward of a success
        ("reward_extra", pa.map_(pa.string(), pa.float64())),  # the other numbers of the reward function
        ("tool_calls", pa.map_(pa.string(), pa.int32())),  # by tool
        ("stop", pa.string()),
        ("failure", pa.string()),
        ("failure_detail", pa.string()),
        ("answer", pa.string()),
        ("environment_reward", pa.float64()),  # the environment's own score, as it gave it
        ("scored_by_environment", pa.bool_()),  # its reward then stands, whatever a judge says
        ("policy_seconds", pa.float64()),
        ("environment_seconds", pa.float64()),
        ("seconds", pa.float64()),
        ("started_at", MOMENT),
        *PLACE,
    ]
)

# One row a step.
STEPS = pa.schema(
    [
        ("trajectory", pa.string()),
        ("split", pa.string()),
        ("iteration", pa.int32()),
        ("step", pa.int32()),  # counts from 0
        ("url", pa.string()),
        ("page_site", pa.string()),  # registrable domain of the page that was seen
        ("screenshot", pa.string()),  # SHA-256 of the image that was sent
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("action", pa.string()),  # its name; null when the response was no action
        ("parse_error", pa.string()),
        ("action_error", pa.string()),
        ("page_changed", pa.bool_()),
        ("response_characters", pa.int32()),
        ("response_digest", pa.string()),  # 16 hex digits of the SHA-256 of the response
        ("prompt_tokens", pa.int32()),
        ("response_tokens", pa.int32()),  # null when the server gave no ids
        ("finish_reason", pa.string()),
        ("policy_version", pa.int32()),  # trainings behind the weights that produced it; null where nobody told
        ("policy_seconds", pa.float32()),
        ("environment_seconds", pa.float32()),
    ]
)

# One row a judgement; of a trajectory the judge's newest counts, else the ORM's newest.
JUDGEMENTS = pa.schema(
    [
        ("trajectory", pa.string()),
        ("split", pa.string()),
        ("iteration", pa.int32()),
        ("source", pa.string()),  # judge, or orm
        ("probability", pa.float64()),  # of success, as an ORM gave it
        ("success", pa.bool_()),
        ("failure", pa.string()),
        ("failure_detail", pa.string()),
        ("blocked", pa.bool_()),
        ("model", pa.string()),  # the model that gave the verdicts
        ("settings_digest", pa.string()),
        ("agreement", pa.float64()),  # smallest share of votes, over its questions, that went with the decision
        ("votes", pa.int32()),  # votes on the question that had the fewest
        ("calls", pa.int32()),
        ("judged_at", MOMENT),
        *PLACE,
    ]
)

# One row a line that can't be read.
DAMAGE = pa.schema([("split", pa.string()), ("iteration", pa.int32()), *PLACE, ("reason", pa.string())])

TABLES: dict[str, pa.Schema] = {
    "trajectories": TRAJECTORIES,
    "steps": STEPS,
    "judgements": JUDGEMENTS,
    "damage": DAMAGE,
}
