from conformance.store_cases import *  # noqa: F403
