"""The plots of the benchmarks: bars from zero on a linear axis, so that lengths can be compared.

matplotlib is installed for benchmarks only; here its axis is one that notes what is asked of it.
"""

from unittest.mock import MagicMock

from bench.plots import _draw_panel
from bench.results import Results

TITLES = {"mcpearl": "mcpearl", "mcp": "mcp"}


def test_bars_begin_at_zero_of_a_linear_axis() -> None:
    results = Results({"stdio_single": {"mcpearl": [900.0, 1000.0, 1100.0], "mcp": [10.0] * 3}})
    axis = MagicMock()
    axis.get_xticks.return_value = [0.0, 1000.0, 2000.0]
    _draw_panel(axis, results, "stdio_single", TITLES)
    (names, lengths), options = axis.barh.call_args
    assert (names, lengths) == (["mcpearl", "mcp"], [1000.0, 10.0])
    assert not {"left", "log"} & set(options)
    [(low, high)] = [call.args for call in axis.set_xlim.call_args_list]
    assert low == 0 and high > 1050
    used = {name.partition(".")[0] for name, *_ in axis.method_calls}
    assert not used & {"set_xscale", "semilogx", "loglog", "set_xbound", "set"}
    assert axis.set_xticks.call_args.args == ([0.0, 1000.0],)
