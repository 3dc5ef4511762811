"""Imports the class of a recipient that a person names."""

import importlib
import inspect
import sys

from xbus.errors import ConfigurationError
from xbus.recipient import Recipient


def load_recipient(name: str) -> type[Recipient]:
    """Import the class that ``module:Class`` names.

    Raises:
        ConfigurationError: the module or the class does not exist, or it is no recipient.
    """
    module_name, separator, class_name = name.partition(":")
    if not (module_name and separator and class_name):
        raise ConfigurationError(f'"{name}" names no class', "write it as module:Class, such as examples.names:Names")
    sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # If the module itself lacks another one, its own traceback says so.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ConfigurationError(f'there is no module "{module_name}"', "run this where it can be imported") from error
    found = getattr(module, class_name, None)
    if not (inspect.isclass(found) and issubclass(found, Recipient)):
        raise ConfigurationError(
            f'"{class_name}" in {module_name} is no recipient', "name a subclass of xbus.recipient.Worker or Consumer"
        )
    return found
