"""The model store: where weights come from, and that they are what they should be."""

from units.models.catalogue import CATALOGUE, Model
from units.models.errors import FetchFailed, ModelCorrupt, ModelError, ModelMissing, UnknownModel
from units.models.store import ModelStore, default_root

__all__ = [
    "CATALOGUE",
    "FetchFailed",
    "Model",
    "ModelCorrupt",
    "ModelError",
    "ModelMissing",
    "ModelStore",
    "UnknownModel",
    "default_root",
]
