"""How pages look: colours that colour-blind readers tell apart (Okabe and Ito 2008), light and dark, and the script
that draws the plots in the reader's colours.
"""

from __future__ import annotations

#: Okabe and Ito's colours without black, and without yellow, which is faint on white.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
BUSY, IDLE, OTHER = "#009E73", "#9AA0A6", "#6B6F76"

CSS = """
:root{color-scheme:light dark;--fore:#1b1d20;--back:#ffffff;--soft:#5b6168;--line:#d8dce1;--panel:#f5f6f8;
--link:#0072b2}
@media(prefers-color-scheme:dark){:root{--fore:#e6e8eb;--back:#16181b;--soft:#a3a9b1;--line:#3a3f45;--panel:#1f2226;
--link:#56b4e9}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1200px;padding:0 24px 40px;background:var(--back);color:var(--fore);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
h1{font-size:1.5rem;margin:28px 0 8px}h2{font-size:1.15rem;margin:0 0 4px}
nav ul{display:flex;flex-wrap:wrap;gap:4px 18px;list-style:none;margin:0;padding:8px 0;
border-bottom:1px solid var(--line)}
a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}
section{margin:28px 0;padding-top:4px}.about{color:var(--soft);margin:0 0 12px}
dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 20px;margin:0}dt{color:var(--soft)}
dd{margin:0;overflow-wrap:anywhere}
.wide{overflow:auto;max-height:560px;border:1px solid var(--line);border-radius:6px;margin-top:8px}
table{border-collapse:collapse;width:100%;font-size:.87rem}
th,td{padding:4px 10px;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
td{overflow-wrap:break-word}
.paths td:first-child{overflow-wrap:anywhere;min-width:19rem}.paths td:last-child{min-width:15rem}
th{position:sticky;top:0;background:var(--panel)}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.drawing{padding:12px;max-height:none}.drawing svg{display:block;margin:auto;max-width:100%;height:auto}
.code{position:relative}pre{background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:10px;
overflow:auto;max-height:420px;font-size:.82rem;margin:8px 0}
input,button{font:inherit;font-size:.87rem;color:var(--fore);background:var(--panel);border:1px solid var(--line);
border-radius:6px;padding:4px 10px}
.plot{width:100%}footer{color:var(--soft);border-top:1px solid var(--line);padding-top:10px}
@media(max-width:700px){dl{grid-template-columns:1fr}dt{margin-top:6px}}
@media print{nav,.filter,.save{display:none}.wide,pre{max-height:none;overflow:visible}}
"""

SCRIPT = """
"use strict";
const figures = JSON.parse(document.getElementById("figures").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
function styled(layout) {
  const look = Object.assign({}, layout);
  const fore = colour("--fore"), line = colour("--line"), panel = colour("--panel");
  look.paper_bgcolor = look.plot_bgcolor = colour("--back");
  look.font = {color: fore, size: 13, family: "system-ui, DejaVu Sans, sans-serif"};
  look.hoverlabel = {bgcolor: panel, bordercolor: line, font: {color: fore}};
  for (const key of Object.keys(layout)) {
    if (/^[xy]axis/.test(key)) {
      look[key] = Object.assign({gridcolor: line, zerolinecolor: line, linecolor: fore, automargin: true}, layout[key]);
    }
  }
  return look;
}
function draw() {
  for (const [name, figure] of Object.entries(figures)) {
    Plotly.react(name, figure.data, styled(figure.layout), {responsive: true, displaylogo: false});
  }
}
draw();
dark.addEventListener("change", draw);
for (const field of document.querySelectorAll("input.filter")) {
  field.addEventListener("input", () => {
    const word = field.value.toLowerCase();
    for (const row of field.nextElementSibling.querySelectorAll("tbody tr")) {
      row.hidden = !row.textContent.toLowerCase().includes(word);
    }
  });
}
for (const button of document.querySelectorAll("button.save")) {
  button.addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([button.nextElementSibling.textContent], {type: "text/plain"}));
    link.download = button.dataset.name;
    link.click();
    URL.revokeObjectURL(link.href);
  });
}
"""
