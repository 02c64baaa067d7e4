"""What the inventory's references say about a campaign, on screen."""

from __future__ import annotations

from experiments.analysis.references import ReferenceCheck
from experiments.report.formats import quantity
from experiments.report.sections.references import FORMATS, checked_text, meant, outside_text
from experiments.util.screen import Screen


def show_references(screen: Screen, found: ReferenceCheck) -> int:
    """Says what left its band and which references match no cell; returns the exit code, 1 or 0."""
    for each in found.outside:
        screen.line(f"Outside its band: {checked_text(each)}", "bold red")
    for reference in found.unmatched:
        value = quantity(reference.value, FORMATS[reference.quantity])
        screen.line(
            f"Matches no cell of this campaign: the reference {value} for {reference.quantity} of "
            f"{meant(reference)}.",
            "yellow",
        )
    if found.other_matrices:
        screen.line(f"There are references for other matrices, too: {', '.join(found.other_matrices)}.")
    if found.outside:
        screen.line(f"{outside_text(found)}: the exit code is 1, even if all runs are ok.", "bold red")
    elif found.checked:
        known = sum(each.here is not None for each in found.checked)
        rest = len(found.checked) - known
        screen.line(
            f"{known} of {len(found.checked)} figures with a reference are within their bands"
            + (f", {rest} not known yet." if rest else ".")
        )
    return found.exit_status
