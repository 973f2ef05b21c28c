from conformance.command_cases import *  # noqa: F403
