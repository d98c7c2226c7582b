"""What can go wrong with models. ``str(error)`` is one sentence that says what to do."""

from __future__ import annotations


class ModelError(Exception):
    """Base of everything the model store raises."""


class UnknownModel(ModelError):
    """No model of that name in the catalogue."""


class ModelMissing(ModelError):
    """The model is not in the store, or not all of it."""


class ModelCorrupt(ModelError):
    """A file of the model is not what the catalogue says."""


class FetchFailed(ModelError):
    """The model could not be fetched; what was downloaded so far is kept."""


class SourceFailed(Exception):
    """One source of one file did not serve; the next one is tried."""
