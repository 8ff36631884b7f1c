"""What an operator says to a runtime, by environment variables: parsed once, described where declared, never guessed.

`load_settings` returns all of it or raises `MalformedSetting`, one line that names each variable, what is wrong and what
would be right. What only is not there *yet* (a credentials file that somebody writes later) is no malformed setting: it is
read afresh for each attempt and raises `NotThereYet`. No setting lowers the verification of certificates, and none turns
masking off.
"""

from mesh_runtime.settings.address import Address
from mesh_runtime.settings.credentials import Credentials, NotThereYet, read_credentials, read_file
from mesh_runtime.settings.describing import SettingRow, describe_settings
from mesh_runtime.settings.loading import Loaded, load_settings
from mesh_runtime.settings.malformed import MalformedSetting
from mesh_runtime.settings.module import ModuleSettings
from mesh_runtime.settings.runtime import RuntimeSettings

__all__ = [
    "Address",
    "Credentials",
    "Loaded",
    "MalformedSetting",
    "ModuleSettings",
    "NotThereYet",
    "RuntimeSettings",
    "SettingRow",
    "describe_settings",
    "load_settings",
    "read_credentials",
    "read_file",
]
