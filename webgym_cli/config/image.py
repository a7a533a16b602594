"""Image sizes."""

from __future__ import annotations

from pydantic import Field

from webgym_cli.config.section import ConfigSection


class ImageSettings(ConfigSection):
    """The image sizes that serving and training share."""

    image_min_pixels: int = Field(default=32 * 32, ge=1)
    """Minimum number of pixels of an image; written into LLaMA-Factory's configuration."""
    image_max_pixels: int = Field(default=1280 * 1024, ge=1)
    """Maximum number of pixels of an image. Larger screenshots are refused: LLaMA-Factory would downscale what vLLM
    processed at full size."""
