"""An advantage estimator as a user writes one. The trainer imports this file in an environment of its own."""

from webgym_cli.config.estimators import advantage_estimator


@advantage_estimator("dial_centred")
def centre(given):
    """Return a reward less the mean of all."""
    total = given.tokens.total(given.rewards)
    return (total - total[given.tokens.valid].mean())[given.tokens.trajectory]
