"""Kinds of the fields `run` and `setup`: text for a shell, words for a program. What these do is not looked at."""

from __future__ import annotations

from typing import Any

from longboat.core.jobs import Value
from longboat.specs.fields.composites import Either, ListOf
from longboat.specs.fields.scalars import FieldPath, FieldType, quote, text_fault
from longboat.specs.yaml.yaml_tree import YamlNode

_MAX_SCRIPT = 100_000  # fits into a Kubernetes object with the rest of the job


class Script(Value, frozen=True):
    """A command, or one word of one: any text a program can be given."""

    expected: str
    empty: bool = False

    def read(self, node: YamlNode, at: FieldPath) -> str | None:
        text = node.value
        if not isinstance(text, str):
            quoted = None if not node.is_scalar or text is None else f"quote it: {quote(node.text)}"
            at.wrong(node, self.expected, hint=quoted)
            return None
        if (fault := text_fault(text, _MAX_SCRIPT)) is not None:
            at.problem(node, fault[0], hint=fault[1])
            return None
        if not self.empty and not text.strip():
            at.wrong(node, self.expected)
            return None
        return text

    def schema(self) -> dict[str, Any]:
        return {"type": "string"} if self.empty else {"type": "string", "minLength": 1}


class CommandWords(ListOf, frozen=True):
    """The first word names a program, so it is never empty."""

    def read(self, node: YamlNode, at: FieldPath) -> tuple[Any, ...] | None:
        if isinstance(node.value, list) and node.value and node.value[0].value == "":
            at.into(0).wrong(node.value[0], "the name of a program")
            return None
        return super().read(node, at)


COMMAND: FieldType = Either(
    scalar=Script(expected="a command, run by the shell"),
    listed=CommandWords(
        item=Script(expected="a word of the command", empty=True), what="words, run as they are", least=1
    ),
)
