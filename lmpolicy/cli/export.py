"""Write the model of a run for other programs: ``lmpolicy export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmpolicy.cli.options import Json, RunFolder


def export(
    run: RunFolder,
    output: Annotated[Path, typer.Option(help="Folder to write.", show_default=False)],
    adapter: Annotated[bool, typer.Option("--adapter", help="Write only the LoRA adapter, in the format of PEFT.")] = (
        False
    ),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a model that is there already.")] = False,
    json: Json = False,
) -> None:
    """Write the model with its adapter merged, in the format of Transformers, with a model card."""
    from lmpolicy.cli.runs import Run
    from lmpolicy.cli.told import tell
    from lmpolicy.lm.exporting import whole_folder

    policy = Run.open(run).policy()
    try:
        if adapter:
            with whole_folder(output, overwrite) as draft:
                policy.save_adapter(draft)
        else:
            policy.export(output, overwrite)
    except FileExistsError as error:
        raise FileExistsError(str(error).replace("pass overwrite=True", "pass --overwrite")) from None
    if adapter:
        hint = f"peft.PeftModel.from_pretrained(model, {str(output)!r}) reads it, and lmpolicy train --adapter {output}"
    else:
        hint = f"AutoModelForCausalLM.from_pretrained({str(output)!r}) reads it, and lmpolicy train --model {output}"
    tell({"folder": str(output), "adapter": adapter}, f"{output}: {hint}", json)
