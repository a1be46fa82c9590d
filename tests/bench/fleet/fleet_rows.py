"""Rows of the fleet bench, made from a few figures."""

from bench.fleet.run import Row
from bench.fleet.statistics import Summary


def summary(mean: float | None, p99: float | None = None, share: float = 1.0) -> Summary:
    """Times in seconds; the p99 is ten times the mean if it is not given."""
    if p99 is None and mean is not None:
        p99 = 10.0 * mean
    return Summary(
        requests=400,
        rate=40.0,
        ttft_mean=mean,
        ttft_p50=mean,
        ttft_p90=mean,
        ttft_p95=mean,
        ttft_p99=p99,
        goodput=40.0 * share,
        good_share=share,
        tokens_s=1000.0,
        hit_rate=0.5,
        hotspot=1.1,
        preemptions=0.0,
        errors={},
        late_p99=0.001,
        load_cpu=0.05,
    )


def row(name: str, mean: float, round: int = 0, workload: str = "chat", share: float = 1.0) -> Row:
    return Row(name, workload, round, summary=summary(mean, share=share))


def rounds(name: str, *means: float, workload: str = "chat", share: float = 1.0) -> list[Row]:
    """One row per mean TTFT."""
    return [row(name, mean, number, workload, share) for number, mean in enumerate(means)]
