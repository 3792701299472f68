"""Methods of the literature that omkl is compared with."""

from omkl_lab.methods.adaraker import AdaRaker
from omkl_lab.methods.domkl import DOMKL

__all__ = ["DOMKL", "AdaRaker"]
