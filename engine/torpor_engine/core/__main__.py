"""``python -m torpor_engine.core``: the core process, started by the API process only."""

import sys

from torpor_engine.core.process import main

sys.exit(main())
