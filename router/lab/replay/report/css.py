"""The style sheet of the page. Colours are variables, so that plots also have a dark mode.

The colours of policies are those of Okabe and Ito, which are safe for colour-blind readers. In dark
mode the colours are lighter.
"""

CSS = """\
:root {
  --paper: #ffffff; --ink: #1a1d21; --faint: #5b6470; --line: #d9dde3; --shade: #f5f6f8;
  --s0: #0072b2; --s1: #d55e00; --s2: #009e73; --s3: #b5568f;
  --s4: #c98500; --s5: #3f9fd8; --s6: #6b6b6b; --s7: #7a4fbf;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171a; --ink: #e8eaed; --faint: #a2abb6; --line: #363c44; --shade: #1d2125;
    --s0: #4fb0ea; --s1: #ff8b4d; --s2: #35c99a; --s3: #e89cc8;
    --s4: #f0bf45; --s5: #a8dcff; --s6: #b0b0b0; --s7: #b99aee;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 76rem; padding: 1.25rem 1rem 4rem;
  background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
header { border-bottom: 1px solid var(--line); margin-bottom: 1.25rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 0 0 .5rem; }
header p, figcaption, section p {
  color: var(--faint); font-size: .875rem; margin: .25rem 0 .75rem; max-width: 60rem; }
section { margin: 2rem 0; }
.findings { padding-left: 1.2rem; margin: 0 0 1.5rem; max-width: 60rem; }
.findings li { margin: .35rem 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: separate; border-spacing: 0; font-size: .8125rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .55rem; text-align: left; vertical-align: top; white-space: nowrap; }
th:first-child, td:first-child { position: sticky; left: 0; background: var(--paper); }
td:first-child { white-space: normal; overflow-wrap: anywhere; min-width: 8rem; max-width: 16rem; }
th { border-bottom: 2px solid var(--line); font-weight: 600; }
th span { display: block; color: var(--faint); font-weight: 400; }
td { border-bottom: 1px solid var(--line); }
.n { text-align: right; }
.first td { border-top: 2px solid var(--line); }
td b { font-weight: 700; }
td small { display: block; color: var(--faint); font-size: .6875rem; }
tbody tr:hover { background: var(--shade); }
.plots { display: grid; gap: 2rem 2.5rem; margin: 2rem 0;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 30rem), 1fr)); }
figure { margin: 0; min-width: 0; }
svg { display: block; width: 100%; height: auto; }
svg * { stroke-linejoin: round; stroke-linecap: butt; }
dl { display: grid; grid-template-columns: minmax(7rem, max-content) 1fr; gap: .3rem 1.25rem;
  margin: 0; font-size: .9375rem; }
dt { color: var(--faint); }
dd { margin: 0; overflow-wrap: anywhere; }
pre { overflow-x: auto; background: var(--shade); padding: .75rem 1rem; font-size: .8125rem; }
@media print { body { max-width: none; } figure { break-inside: avoid; } }
"""
