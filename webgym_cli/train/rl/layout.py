"""Names that the trainer and the rest of webgym both know: files of a training, parts of a model. Imports nothing."""

TRAINER_LOG = "trainer_log.jsonl"
"""The log of a training, a line an optimizer step."""
TRAINER_STATE = "trainer_state.json"
"""Written last into a checkpoint: its presence means that the checkpoint is whole."""
RL_STATE = "rl_state"
"""The folder in a checkpoint with the exact weights and Adam moments that our own trainer left."""
VISION = ("visual.", "vision_tower.", "vision_model.", "multi_modal_projector.")
"""Name fragments of the vision tower's parameters."""
