"""What problems are made of: fields, checked arrays, number formats, and what an oracle says.

from mlagen.problem import compare

expected = exact(inputs)  # an oracle of the problem's family
compare(expected.output, inputs.output_view(o))
"""

from mlagen.problem.expected import Comparison, Expected, HeadErrors, Worst, compare

__all__ = ["Comparison", "Expected", "HeadErrors", "Worst", "compare"]
