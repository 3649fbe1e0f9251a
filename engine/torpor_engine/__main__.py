"""``python -m torpor_engine``: the same as the command ``torpor``."""

from torpor_engine.cli import main

main()
