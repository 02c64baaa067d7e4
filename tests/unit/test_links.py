"""What nodes say about the network that their ranks take."""

from __future__ import annotations

import pytest

from tests.nodes.links import link_of, rate_of

ROUTE = """\
[{"dst":"198.18.0.12","dev":"eth0","prefsrc":"198.18.0.11","flags":[],"uid":0,"cache":[]}]
"""
LIMITED = "qdisc tbf 8001: root refcnt 13 rate 100Mbit burst 32Kb lat 50ms \n"


@pytest.mark.parametrize(
    ("speed", "queueing", "rate"),
    [
        ("10000\n", "qdisc noqueue 0: root refcnt 2 \n", "10000 Mbit/s"),
        ("10000\n", LIMITED, "limited to 100Mbit"),
        ("-1\n", "qdisc mq 0: root \n", "unknown"),
        ("", "", "unknown"),
    ],
)
def test_a_links_rate_is_its_limit_or_what_its_driver_says(speed: str, queueing: str, rate: str) -> None:
    assert rate_of(speed, queueing) == rate


def test_a_link_is_told_in_words() -> None:
    assert str(link_of(ROUTE, "1000", "")) == "eth0 (198.18.0.11), 1000 Mbit/s"
