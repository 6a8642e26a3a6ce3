"""FourierQK, reproduced: the paper's variants, their training and records, and a causality audit."""

from importlib.metadata import version
from typing import Any

__version__ = version("fqk")


def __getattr__(name: str) -> Any:
    # On demand, so that ``import fqk.audit`` brings torch and numpy and nothing else.
    if name == "build_model":
        from fqk.model import build_model

        return build_model
    raise AttributeError(f"module 'fqk' has no attribute {name!r}")
