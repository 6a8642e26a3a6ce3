"""FourierQK, reproduced: the paper's variants, their training and records, and a causality audit."""

from importlib.metadata import version

__version__ = version("fqk")
