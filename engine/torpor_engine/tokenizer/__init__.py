"""Text to token ids and back, and the chat template: everything between HTTP text and the core.

Runs in the API process only, on the `tokenizers` library; no transformers, no torch.
"""

from torpor_engine.tokenizer.chat_template import ChatTemplate, ChatTemplateError
from torpor_engine.tokenizer.detokenizer import Detokenizer
from torpor_engine.tokenizer.token_text import TokenText
from torpor_engine.tokenizer.tokenizer import Tokenizer

__all__ = ["ChatTemplate", "ChatTemplateError", "Detokenizer", "TokenText", "Tokenizer"]
