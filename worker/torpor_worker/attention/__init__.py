"""Paged attention: backends over one interface (``base``), chosen in ``select``."""
