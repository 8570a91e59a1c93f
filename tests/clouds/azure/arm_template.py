"""Expressions of ARM templates, as far as Longboat's templates use them: written from Azure's documentation."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from typing import Any

_TOKEN = re.compile(r"\s*('(?:[^']|'')*'|[A-Za-z_]\w*|[(),.])")


class Expressions:
    """Fills a template. `reference`: the properties of a resource that is there."""

    def __init__(
        self, subscription: str, group: str, parameters: dict[str, Any], reference: Callable[[str], dict[str, Any]]
    ) -> None:
        self._subscription = subscription
        self._words: list[str] = []
        self._functions: dict[str, Callable[..., Any]] = {
            "parameters": lambda name: parameters[name],
            "subscription": lambda: {"id": f"/subscriptions/{subscription}", "subscriptionId": subscription},
            "resourceId": lambda kind, name: f"{self._path(group)}/providers/{kind}/{name}",
            "subscriptionResourceId": lambda kind, name: f"{self._path()}/providers/{kind}/{name}",
            "reference": lambda path, _version="": reference(path),
            "guid": lambda *words: str(uuid.uuid5(uuid.NAMESPACE_URL, "-".join(words))),
            "concat": lambda *words: "".join(words),
        }

    def fill(self, value: Any) -> Any:
        if isinstance(value, dict):
            is_inner = value.get("type") == "Microsoft.Resources/deployments"
            return {
                key: {**self.fill({k: v for k, v in each.items() if k != "template"}), "template": each["template"]}
                if is_inner and key == "properties"
                else self.fill(each)
                for key, each in value.items()
            }
        if isinstance(value, list):
            return [self.fill(each) for each in value]
        if isinstance(value, str) and value.startswith("[") and value.endswith("]"):
            self._words = _TOKEN.findall(value[1:-1])
            result = self._value()
            assert not self._words, value
            return result
        return value

    def _value(self) -> Any:
        word = self._words.pop(0)
        if word.startswith("'"):
            return word[1:-1].replace("''", "'")
        assert self._words.pop(0) == "(", word
        arguments = []
        while self._words[0] != ")":
            arguments.append(self._value())
            if self._words[0] == ",":
                self._words.pop(0)
        self._words.pop(0)
        result = self._functions[word](*arguments)
        while self._words and self._words[0] == ".":
            self._words.pop(0)
            result = result[self._words.pop(0)]
        return result

    def _path(self, group: str = "") -> str:
        return f"/subscriptions/{self._subscription}" + (f"/resourceGroups/{group}" if group else "")
