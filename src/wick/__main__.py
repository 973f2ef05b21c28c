"""Run the command `wick` with `python -m wick`."""

import os
import sys

from wick_launcher import main

# `python -m` puts the working folder on the path, which an agent may write. The command `wick` does not.
if sys.path[0] == os.getcwd() and not __file__.startswith(os.path.join(sys.path[0], "wick", "")):
    del sys.path[0]
main()
