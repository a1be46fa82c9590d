"""The Prometheus text format as the engines write it."""

from router.lab.emulator.http.personas.exposition import Exposition, merged
from router.lab.emulator.statistics import Histogram


def test_labels_are_sorted_and_escaped_and_numbers_are_floats() -> None:
    out = Exposition("x:", {"model": 'a"b\\c\nd'})
    out.gauge("one", 3, "Of one.")
    out.sample("one", 4, engine="0")
    assert out.text() == (
        "# HELP x:one Of one.\n# TYPE x:one gauge\n"
        'x:one{model="a\\"b\\\\c\\nd"} 3.0\n'
        'x:one{engine="0",model="a\\"b\\\\c\\nd"} 4.0\n'
    )


def test_the_rust_exporter_has_blank_lines_and_whole_numbers() -> None:
    histogram = Histogram([0.5])
    histogram.observe(0.25, times=2)
    out = Exposition("x_", {}, is_rust=True)
    out.gauge("one", 3)
    out.histogram("two", histogram)
    assert out.text() == (
        "# TYPE x_one gauge\nx_one 3\n\n# TYPE x_two histogram\n"
        'x_two_bucket{le="0.5"} 2\nx_two_bucket{le="+Inf"} 2\nx_two_sum 0.5\nx_two_count 2\n'
    )


PAGE = """\
# HELP x:a A gauge.
# TYPE x:a gauge
x:a{rank="%d"} 1.5
# TYPE x:b counter
x:b{rank="%d"} 2.0
x:b 3.0
"""


def test_the_pages_of_several_engines_are_joined_by_family() -> None:
    assert merged([PAGE % (0, 0)]) == PAGE % (0, 0)
    assert merged([PAGE % (0, 0), PAGE % (1, 1)]).splitlines() == [
        "# HELP x:a A gauge.",
        "# TYPE x:a gauge",
        'x:a{rank="0"} 1.5',
        'x:a{rank="1"} 1.5',
        "# TYPE x:b counter",
        'x:b{rank="0"} 2.0',
        "x:b 6.0",
        'x:b{rank="1"} 2.0',
    ]
