from conformance.held_thread_cases import *  # noqa: F403
