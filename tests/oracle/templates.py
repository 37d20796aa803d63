"""Programs: random ones, and ones of the shapes that directives ask for."""

from __future__ import annotations

import random

from .generate import Generator
from .program import Kernel


def program(rng: random.Random, name: str) -> Kernel:
    """A random program."""
    return Generator(rng, name).kernel()
