"""Find language models by name: the bundled ones, and families from the Hugging Face hub."""

from lmpolicy.models.errors import ModelError
from lmpolicy.models.names import PRETRAINED, NamedModel, PackagedFile, find, named_models
from lmpolicy.models.resolving import resolve

__all__ = ["PRETRAINED", "ModelError", "NamedModel", "PackagedFile", "find", "named_models", "resolve"]
