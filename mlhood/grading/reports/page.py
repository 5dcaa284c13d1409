"""The frame of a page: one file that asks for nothing, runs nothing, prints, and says nothing by colour alone."""

from __future__ import annotations

from collections.abc import Collection
from html import escape

from mlhood.grading.reports.marks_text import SIGNS, number
from mlhood.grading.reports.run_report import STYLE

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'"
# Beyond the report's own: edges of different strokes beside results, and bars with stripes where points are lost.
MORE_STYLE = """
pre { font: .82rem/1.45 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; margin: 0;
  padding: .5rem .75rem; tab-size: 4; }
.code { border: 1px solid var(--line); background: var(--shade); margin: .75rem 0 0; }
.code .k, .code .kn, .code .kc, .code .ow { font-weight: 700; }
.code .c1, .code .sd { color: var(--soft); font-style: italic; }
.code .s1, .code .s2, .code .sa, .code .si { color: var(--link); }
.output { border-left: 3px double var(--line); margin: .5rem 0 .5rem .5rem; padding-left: .5rem; max-width: 100%;
  overflow-x: auto; font-size: .9rem; }
.output img { display: block; max-width: 100%; max-height: 40rem; height: auto; background: #fff; }
.output table { width: auto; } .output tbody th { width: auto; white-space: nowrap; } .output p { margin: .25rem 0; }
.label { color: var(--soft); font-size: .85rem; margin: .75rem 0 0; }
tr.failed td:first-child { border-left: 4px solid var(--bad); }
tr.passed td:first-child { border-left: 1px solid var(--good); }
tr.skipped td:first-child { border-left: 4px dotted var(--soft); }
.bar div { background: repeating-linear-gradient(135deg, transparent 0 4px, var(--line) 4px 5px); }
.bar span { background: var(--soft); }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: .75rem; } .pair > div { min-width: 0; }
.pair .label { overflow-wrap: anywhere; }
mark { background: none; color: inherit; display: block; border-left: 4px solid var(--soft);
  margin-left: -.6rem; padding-left: calc(.6rem - 4px); font-weight: 600; }
.bins { display: flex; gap: 2px; min-width: 9rem; }
.bins span { flex: 1; height: 3.2rem; display: flex; flex-direction: column; justify-content: flex-end;
  text-align: center; font-size: .75rem; line-height: 1.2; }
.bins i { background: var(--soft); border-top: 1px solid var(--soft); print-color-adjust: exact; }
@media (max-width: 40rem) { .pair { grid-template-columns: 1fr; } }
@media print { @page { margin: 15mm; } h2, .label { break-after: avoid; }
  .code, .output { break-inside: auto; } .output img { break-inside: avoid;
  max-height: 16cm; }
  .bar div, .bar span, .code { print-color-adjust: exact; } a { color: inherit; text-decoration: none; } }
"""

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="mlhood">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{title}</h1>
{header}
</header>
<main>
{body}
</main>
</body>
</html>
"""


def page(title: str, header: str, body: str) -> str:
    """A whole page.

    Args:
        title: Plain text.
        header: HTML below the title.
        body: HTML.
    """
    return PAGE.format(policy=POLICY, title=escape(title), style=STYLE + MORE_STYLE, header=header, body=body)


def of(earned: float, points: float) -> str:
    """`6 of 8 points`, without the word; hundredths at most."""
    return f"{number(round(earned, 2))} of {number(round(points, 2))}"


def bar_cell(part: float, whole: float) -> str:
    """A cell of a table with a bar; the number stands beside it, so it is for the eye only."""
    share = min(100.0, max(0.0, 100 * part / whole)) if whole else 0
    return f'<td class="bar"><div aria-hidden="true"><span style="width:{share:.0f}%"></span></div></td>'


def state(status: str) -> str:
    """A result by sign and word."""
    return f'<td class="state">{SIGNS[status]} {status}</td>'


def head(*titles: str, bars: str = "", numbers: Collection[str] = ("Points",)) -> str:
    """The head of a table: titles of columns, of which `bars` heads bars and `numbers` head numbers."""
    kinds = {bars: ' class="bar"'} | dict.fromkeys(numbers, ' class="points"')
    cells = "".join(f'<th scope="col"{kinds.get(title, "")}>{escape(title)}</th>' for title in titles)
    return f"<thead><tr>{cells}</tr></thead>"
