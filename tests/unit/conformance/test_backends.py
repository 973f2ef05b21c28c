from conformance.backend_cases import *  # noqa: F403
