"""Cases as they are written on the command line."""

from __future__ import annotations

import pytest

from anabranch.errors import InvalidArgument
from anabranch_bench.results.cases import Case


class TestCases:
    def test_options(self) -> None:
        case = Case.parse("megaphone:plan=fluid,batch=4")
        assert (case.strategy, case.options) == ("megaphone", {"plan": "fluid", "batch": 4})
        assert Case.parse("live:latency_target=0.5").options == {"latency_target": 0.5}
        assert Case.parse("control").strategy is None
        assert Case.parse("spark").strategy is None

    def test_mistakes(self) -> None:
        with pytest.raises(InvalidArgument, match="name=value"):
            Case.parse("meces:10")
