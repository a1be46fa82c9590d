"""The number of tokens in time, against each token's deadline."""

from hypothesis import given, strategies as st

from policies.token_deadlines import on_time

TICK = 1 / 64  # exact as a float, and so are its multiples and their sums here
TICKS = st.integers(-640, 640).map(lambda n: n * TICK)


@given(TICKS, TICKS, st.integers(0, 400))
def test_each_token_has_its_deadline(late_s: float, gains_s: float, tokens: int) -> None:
    wanted = sum(late_s - i * gains_s < 0.0 for i in range(tokens))
    assert on_time(late_s, gains_s, float(tokens)) == wanted
