"""Credentials and region of AWS, from the environment or from the files of its command line."""

from __future__ import annotations

import os
from configparser import ConfigParser, Error

from wick._internal.aws_signature import AwsCredentials
from wick._internal.environment import read_variable
from wick.errors import ConfigError

_INDIRECT = ("role_arn", "sso_session", "sso_start_url", "credential_process", "web_identity_token_file")


def find_region(profile: str = "") -> str:
    """Return the region of the environment or of a profile, or an empty string."""
    found = read_variable("AWS_REGION") or read_variable("AWS_DEFAULT_REGION")
    return found or _read_profile(profile)[1].get("region", "")


def find_credentials(profile: str = "", *, purpose: str = "wick", other_variable: str = "") -> AwsCredentials:
    """Return the credentials of a profile, or those of the environment; raise ConfigError if there are none.

    The error names their `purpose`, and another variable that can be set in their place.
    """
    other = f" or {other_variable}," if other_variable else ""
    advice = f"set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,{other} or run: aws configure"
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    key, secret, token = map(read_variable, names)
    if key and secret and not profile:
        return AwsCredentials(key, secret, token or None)
    name, found = _read_profile(profile)
    if "aws_access_key_id" in found and "aws_secret_access_key" in found:
        return AwsCredentials(
            found["aws_access_key_id"], found["aws_secret_access_key"], found.get("aws_session_token") or None
        )
    if indirect := next((way for way in _INDIRECT if way in found), ""):
        raise ConfigError(
            f"the profile {name!r} of AWS uses {indirect}, which wick does not follow; run: "
            'eval "$(aws configure export-credentials --format env)", or give credentials=… as a function'
        )
    if profile:
        raise ConfigError(f"there is no profile {profile!r} with an access key; correct the profile, or {advice}")
    raise ConfigError(f"{purpose} needs credentials of AWS: {advice}")


def _read_profile(profile: str) -> tuple[str, dict[str, str]]:
    """Return the name and the settings of a profile, from the files of credentials and of settings."""
    name = profile or read_variable("AWS_PROFILE") or "default"
    shared = read_variable("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
    config = read_variable("AWS_CONFIG_FILE") or "~/.aws/config"
    section = name if name == "default" else f"profile {name}"
    return name, _read_section(config, section) | _read_section(shared, name)


def _read_section(path: str, section: str) -> dict[str, str]:
    parser = ConfigParser(interpolation=None, strict=False, default_section="\0")
    try:
        parser.read(os.path.expanduser(path), encoding="utf-8")
    except (OSError, Error, UnicodeDecodeError):
        raise ConfigError(f"the file {path} cannot be read as settings of AWS; correct it") from None
    return {key: value.strip() for key, value in parser[section].items()} if parser.has_section(section) else {}
