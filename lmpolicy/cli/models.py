"""List the language models that are known by name: ``lmpolicy models``."""

from __future__ import annotations

from typing import Any

from lmpolicy.cli.options import Json


def models(json: Json = False) -> None:
    """List the language models that --model knows by name, where they are, and how large they are.

    Other hub ids, folders and *.gguf files work as --model, too.
    """
    from lmpolicy.cli.told import table, tell
    from lmpolicy.models.names import named_models
    from lmpolicy.models.places import place_of

    facts: list[dict[str, Any]] = []
    for one in named_models():
        where, folder, size = place_of(one)
        facts.append(
            {
                "name": one.name,
                "where": where,
                "folder": None if folder is None else str(folder),
                "bytes": size,
                "context": one.context,
                "tested": one.tested,
                "note": one.note,
            }
        )
    rows = [
        (
            fact["name"],
            fact["where"],
            "" if fact["bytes"] is None else f"{fact['bytes'] / 1e6:,.0f} MB",
            "yes" if fact["tested"] else "",
            fact["note"],
        )
        for fact in facts
    ]
    tell({"models": facts}, table(("model", "where", "size", "tested", "what it is"), rows), json)
