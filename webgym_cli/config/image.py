"""Image sizes."""

from __future__ import annotations

from pydantic import Field

from webgym_cli.config.section import ConfigSection


class ImageSettings(ConfigSection):
    """The image sizes that serving and training share: what is trained is what is served."""

    image_min_pixels: int = Field(default=32 * 32, ge=1)
    """Smallest number of pixels of an image; written into LLaMA-Factory's configuration."""
    image_max_pixels: int = Field(default=1280 * 1024, ge=1)
    """Largest number of pixels. Bigger screenshots are refused: LLaMA-Factory would shrink what vLLM saw whole."""
