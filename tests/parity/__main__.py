"""``python -m tests.parity DIR --size tiny|full [--engine] [--device DEVICE]``."""

import sys

from tests.parity.command import main

sys.exit(main())
