from conformance.keeping_cases import *  # noqa: F403
