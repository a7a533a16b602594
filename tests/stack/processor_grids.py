"""Prints how the serve role's processor sizes images: python processor_grids.py <model> <image>..."""

import json
import sys

from PIL import Image
from transformers import AutoProcessor

processor = AutoProcessor.from_pretrained(sys.argv[1])
images = [Image.open(path) for path in sys.argv[2:]]
grids = [processor.image_processor(image, return_tensors="pt")["image_grid_thw"][0].tolist() for image in images]
json.dump(grids, sys.stdout)
