"""Chat templates: equal to transformers' where they are good, one sentence where they are not."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tiny_tokenizer import save_tokenizer
from torpor_engine.tokenizer import ChatTemplate, ChatTemplateError, Tokenizer
from torpor_engine.tokenizer import chat_template as module
from torpor_protocol.errors import ModelError

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is 1 < 2 & 'three'?"},
    {"role": "assistant", "content": "  True.\n"},
    {"role": "user", "content": "🙂 <b>你好</b>"},
]
TEMPLATES = {
    "blocks": "{%- for m in messages %}\n  {{- m.role }}: {{ m['content'] | trim }}\n{%- endfor %}",
    "specials": "{{ bos_token }}{% for m in messages %}{{ m.content + eos_token }}{% endfor %}",
    "tojson": "{{ messages | tojson }}|{{ messages[1] | tojson(indent=2, sort_keys=true) }}",
    "loop": "{% for m in messages %}{% if loop.index0 == 1 %}{% continue %}{% endif %}"
    "{% if loop.last %}{% break %}{% endif %}{{ m.content }}{% endfor %}",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}"
    "{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}\n"
    "{% endfor %}",
    "tools": "{% if tools %}tools{% else %}none{% endif %}{% if documents %}docs{% endif %}",
    "prompt": "{{ messages | length }}{% if add_generation_prompt %}>{% endif %}",
    "macro": "{% macro turn(m) %}[{{ m.role | upper }}]{{ m.content }}{% endmacro %}"
    "{% for m in messages %}{{ turn(m) }}{% endfor %}",
    "undefined": "{{ nothing }}{% if thinking is defined %}x{% endif %}{{ messages[0].name }}",
}


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("prompt", [True, False])
def test_templates_render_as_in_transformers(tmp_path: Path, name: str, prompt: bool) -> None:
    from transformers import PreTrainedTokenizerFast

    save_tokenizer(tmp_path, 1024, 512)
    theirs = PreTrainedTokenizerFast.from_pretrained(str(tmp_path))
    theirs.bos_token, theirs.eos_token = SPECIAL["bos_token"], SPECIAL["eos_token"]
    expected = theirs.apply_chat_template(
        TALK, chat_template=TEMPLATES[name], add_generation_prompt=prompt, tokenize=False
    )
    ours = ChatTemplate(TEMPLATES[name], {**SPECIAL, "pad_token": theirs.pad_token})
    assert ours.render(TALK, add_generation_prompt=prompt) == expected


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_ids_of_a_talk_equal_those_of_transformers(smollm2: Path, length: int) -> None:
    from transformers import AutoTokenizer

    ours, theirs = Tokenizer.from_folder(smollm2), AutoTokenizer.from_pretrained(str(smollm2))
    assert ours.chat_template is not None
    for talk, prompt in itertools.product((TALK[:length], TALK[-length:]), (True, False)):
        text = ours.chat_template.render(talk, add_generation_prompt=prompt)
        expected = theirs.apply_chat_template(talk, add_generation_prompt=prompt, return_dict=False)
        assert ours.encode(text, add_special_tokens=False) == expected


def test_a_template_file_wins_over_the_config(tmp_path: Path) -> None:
    save_tokenizer(tmp_path, 1024, 512)
    (tmp_path / "chat_template.jinja").write_text("from the file")
    template = Tokenizer.from_folder(tmp_path).chat_template
    assert template is not None
    assert template.render(TALK) == "from the file"


def test_the_default_of_several_templates_is_taken(tmp_path: Path) -> None:
    import json

    save_tokenizer(tmp_path, 1024, 512)
    path = tmp_path / "tokenizer_config.json"
    named = [{"name": "rag", "template": "no"}, {"name": "default", "template": "yes"}]
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": named}))
    template = Tokenizer.from_folder(tmp_path).chat_template
    assert template is not None
    assert template.render(TALK) == "yes"


@pytest.mark.parametrize(
    "attack",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ self._TemplateReference__context.vars }}",
        "{% for i in range(10000000) %}x{% endfor %}",
        "{{ raise_exception('roles must alternate') }}",
        "{{ 1 / 0 }}",
        "{{ messages[0].content + 5 }}",
        "{{ messages['nothing'].at.all }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_what_a_template_must_not_do_is_one_error(attack: str) -> None:
    talk: list[dict[str, Any]] = [dict(message) for message in TALK]
    with pytest.raises(ChatTemplateError) as caught:
        ChatTemplate(attack, SPECIAL).render(talk)
    assert "Traceback" not in str(caught.value)
    assert talk == TALK


def test_what_the_template_says_of_the_messages_is_told() -> None:
    with pytest.raises(ChatTemplateError, match=r"roles must alternate\."):
        ChatTemplate("{{ raise_exception('roles must alternate.') }}", {}).render(TALK)


def test_output_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RENDERED_CHARS", 1000)
    template = ChatTemplate("{% for i in range(2000) %}x{% endfor %}", {})
    with pytest.raises(ChatTemplateError, match="too long"):
        template.render(TALK)


def test_a_template_that_is_no_jinja_is_a_fault_of_the_model() -> None:
    with pytest.raises(ModelError, match="chat template"):
        ChatTemplate("{% for %}", {})
