"""An audit as one HTML page that needs nothing else: the verdict, the findings and the map."""

import base64
import json
from html import escape
from string import Template

from fqk.audit import Audit

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title: $verdict</title>
<style>
:root { color-scheme: light dark; --ground: #fff; --text: #1b1b1b; --past: #0072B2; --future: #B04A00; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #161616; --text: #e8e8e8; --past: #56B4E9; --future: #F08A3C; }
}
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem;
  background: var(--ground); color: var(--text); overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .25rem .6rem .25rem 0; vertical-align: top; }
th:first-child { min-width: 6.5em; }
td:nth-child(2) { min-width: 5.5em; }
tr { border-bottom: 1px solid #8884; }
figure { margin: 1.5rem 0; }
figcaption { font-size: .9rem; min-height: 3em; }
canvas { width: 100%; border: 1px solid #8884; image-rendering: pixelated; touch-action: pan-y; }
.past { color: var(--past); }
.future { color: var(--future); }
</style>
</head>
<body>
<h1>$title: $verdict</h1>
<p>$reason.</p>
<table>
<thead><tr><th scope="col">probe</th><th scope="col">verdict</th><th scope="col">what it saw</th></tr></thead>
<tbody>$rows</tbody>
</table>
$losses
<figure>
<canvas id="map" tabindex="0" role="img" aria-label="Which token moves which prediction"></canvas>
<figcaption><span id="said" aria-live="polite"></span> A row is the position i of a prediction, a column the
token j that is replaced: <b class="past">past</b> and <b class="future">future</b>. Point at the map, or use
the arrow keys; a deeper shade is a larger change, on a logarithmic scale.</figcaption>
</figure>
<figure>
<canvas id="lags" width="920" height="200" role="img" aria-label="Influence by tokens ahead"></canvas>
<figcaption>The most that a token moves a prediction made 1, 2, … tokens before it, on the same
scale.</figcaption>
</figure>
<script type="application/json" id="data">$data</script>
<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent), T = data.size;
const bytes = Uint8Array.from(atob(data.influence), c => c.charCodeAt(0));
const influence = new Float32Array(bytes.buffer), value = (i, j) => influence[i * T + j];
const logs = [...influence].filter(v => v > 0 && isFinite(v)).map(Math.log10);
const low = logs.reduce((a, b) => Math.min(a, b), 0), high = logs.reduce((a, b) => Math.max(a, b), low + 1);
const shade = v => v > 0 ? 0.25 + 0.75 * (Math.min(Math.log10(v), high) - low) / (high - low) : 0;
const inside = x => Math.max(0, Math.min(T - 1, x));

const map = document.getElementById("map"), drawing = map.getContext("2d");
map.width = map.height = T;
const image = drawing.createImageData(T, T);
for (let i = 0; i < T; i++) for (let j = 0; j < T; j++) {
  const v = value(i, j), colour = j > i ? [213, 94, 0] : [0, 114, 178];
  image.data.set(Number.isNaN(v) ? [128, 128, 128, 60] : [...colour, 255 * shade(v)], 4 * (i * T + j));
}
let [row, column] = data.first_leak || [T - 1, 0];
function mark() {
  drawing.putImageData(image, 0, 0);
  drawing.fillStyle = "#8888";
  drawing.fillRect(0, row, T, 1);
  drawing.fillRect(column, 0, 1, T);
  const v = value(row, column), lag = column - row;
  const by = Number.isNaN(v) ? "was not measured" : "is " + v.toPrecision(3);
  const where = lag > 0 ? lag + " ahead of it" : -lag + " before it";
  document.getElementById("said").textContent =
    "The influence of token " + column + " on the prediction at " + row + ", " + where + ", " + by + ".";
}
for (const what of ["pointermove", "pointerdown"]) map.addEventListener(what, event => {
  const box = map.getBoundingClientRect();
  row = inside(Math.floor((event.clientY - box.top) / box.height * T));
  column = inside(Math.floor((event.clientX - box.left) / box.width * T));
  mark();
});
map.addEventListener("keydown", event => {
  const step = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key];
  if (!step) return;
  event.preventDefault();
  [row, column] = [inside(row + step[0]), inside(column + step[1])];
  mark();
});
mark();

const bars = document.getElementById("lags").getContext("2d"), width = 920 / (T - 1);
bars.fillStyle = "#D55E00";
for (let lag = 1; lag < T; lag++) {
  let most = 0;
  for (let i = 0; i + lag < T; i++) most = Math.max(most, value(i, i + lag) || 0);
  bars.fillRect((lag - 1) * width, 200 * (1 - shade(most)), Math.max(1, width - 1), 200 * shade(most));
}
</script>
</body>
</html>
""")


def page(audit: Audit, title: str) -> str:
    """The report as HTML, with the influence map to point at; nothing is loaded from elsewhere."""
    rows = "".join(
        f'<tr><th scope="row">{escape(f.probe)}</th><td>{f.verdict}</td><td>{escape(f.detail)}</td></tr>'
        for f in audit.findings
    )
    data = audit.as_dict() | {
        "size": len(audit.influence),
        "influence": base64.b64encode(audit.influence.astype("<f4").tobytes()).decode(),
    }
    return _PAGE.substitute(
        title=escape(title),
        verdict=audit.verdict,
        reason=escape(audit.reason),
        rows=rows,
        losses=f"<p>Loss: {escape(str(audit.losses))}.</p>" if audit.losses else "",
        data=json.dumps(data).replace("<", "\\u003c"),
    )
