from conformance.file_cases import *  # noqa: F403
