"""What a table says of the machine that it was measured on."""

import pytest

from lmpolicy.comparison.machine import is_gpu, name_in

BLOCK = "processor\t: {n}\nvendor_id\t: V\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: {name}\nflags\t\t: a b\n\n"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("AMD EPYC 7763 64-Core Processor", "AMD EPYC 7763 64-Core Processor"),
        ("AMD EPYC", "AMD EPYC (family 25, model 17)"),
    ],
)
def test_family_and_model_where_the_name_tells_no_model(name: str, said: str) -> None:
    assert name_in(BLOCK.format(n=0, name=name) + BLOCK.format(n=1, name="another")) == said


def test_names_without_a_family_are_left_as_they_are() -> None:
    assert name_in("model name : Cortex\n") == "Cortex"


@pytest.mark.parametrize(
    ("name", "gpu"), [("NVIDIA H200", True), ("Tesla T4", True), ("AMD Instinct MI300X", True), ("AMD EPYC", False)]
)
def test_gpus_are_known_by_their_names(name: str, gpu: bool) -> None:
    assert is_gpu(name) is gpu
