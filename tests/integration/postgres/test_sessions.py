from conformance.session_cases import *  # noqa: F403
