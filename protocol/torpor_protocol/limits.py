"""Bounds of all that a peer or a client may make grow: one module, so that none is forgotten.

What a model folder may say is bounded where it is read.
"""

from __future__ import annotations

PROTOCOL_VERSION = 1

# Wire between engine and workers.
MAX_FRAME_BYTES = 16 * 2**20
MAX_RANKS = 1024
MAX_ERROR_TEXT = 16 * 2**10
MAX_LOG_TAIL = 8 * 2**10
HANDSHAKE_TIMEOUT_MS = 5_000
PEER_QUEUE_FRAMES = 1_000  # waiting for one peer to read; the next send says that it is gone
UNREAD_FRAMES = 128  # taken in from one peer before it has to wait
MAX_PEER_NAME = 200  # bytes
MAX_REFUSED_FRAMES = 100  # from one peer before it is cut off
MAX_FRAMES_PER_RECEIVE = 1_024
HEARTBEAT_INTERVAL_MS = 2_000  # finds a machine that vanished; stuck ranks miss their deadlines
HEARTBEAT_TIMEOUT_MS = 10_000
RECONNECT_MS = 100
RECONNECT_MAX_MS = 2_000
REFUSAL_LOG_SECONDS = 10.0  # one line for each reason in that time
MAX_SETTINGS_BYTES = 64 * 2**10  # of a supervisor, on its standard input

# Link between API process and core.
MAX_MESSAGE_BYTES = 256 * 2**20

# Connections of clients.
MAX_HEAD_BYTES = 64 * 2**10
MAX_HEADERS = 100
MAX_DISCARDED_BYTES = 64 * 2**20  # of a body not wanted any more, before the connection is cut
MAX_IDLE_BYTES = 2**20  # raw ones that add nothing to a body, such as extensions of its chunks

# Requests, checked by the API process before anything is allocated for them.
MAX_BODY_BYTES = 4 * 2**20
MAX_JSON_DEPTH = 32
MAX_CHOICES = 16
MAX_PROMPTS = 64
MAX_STOP_STRINGS = 16
MAX_STOP_LENGTH = 512
MAX_STOP_TOKEN_IDS = 64
MAX_LOGIT_BIAS = 300
MAX_TOP_LOGPROBS = 20
MAX_MESSAGES = 2_048
MAX_NAME_CHARS = 256
MAX_TOKENS_FIELD = 2**31 - 1
MAX_RENDERED_CHARS = 16 * 2**20  # what a chat template may make of the messages
