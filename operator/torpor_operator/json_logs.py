"""Logs of the operator: one JSON object per line, as clusters' log collectors like them."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from torpor_protocol.logs import chosen_level

_QUIET = ("kopf.objects", "aiohttp.access")


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def start_json_logging() -> None:
    """To standard error. Raises ConfigError for an unknown level."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=chosen_level(), handlers=[handler], force=True)
    for name in _QUIET:  # a line per event of every object says nothing
        logging.getLogger(name).setLevel(logging.WARNING)
