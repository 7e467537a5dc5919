"""The script of a page: it draws the plots for the reader's width and colours, and does what buttons and fields say.

The script knows figures as plain data, and no section. Where a plot is narrow, titles of axes are broken into lines,
and the legend takes the rows that it needs above the plot.
"""

from __future__ import annotations

SCRIPT = """
"use strict";
const NARROW = 600, LEGEND_ROW = 20, TOOLS = 30;
const element = name => document.getElementById(name);
const figures = JSON.parse(element("figures").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const pen = document.createElement("canvas").getContext("2d");
pen.font = "13px system-ui, DejaVu Sans, sans-serif";
const wide = text => pen.measureText(text).width;
function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
function broken(text, width) {
  const lines = [];
  for (const word of String(text).split(" ")) {
    const longer = lines.length ? lines[lines.length - 1] + " " + word : word;
    if (lines.length && wide(longer) <= width) lines[lines.length - 1] = longer; else lines.push(word);
  }
  return lines.join("<br>");
}
function legendRows(figure, width) {
  const named = figure.data.filter(trace => trace.name !== undefined && trace.showlegend !== false);
  const asked = figure.layout.showlegend;
  if (asked === false || !named.length || (asked !== true && named.length < 2)) return 0;
  const widths = named.map(trace => wide(trace.name) + 45);
  const sum = widths.reduce((total, each) => total + each, 0);
  return sum <= width ? 1 : Math.ceil(named.length / Math.max(1, Math.floor(width / Math.max(...widths))));
}
function labelRoom(figure) {
  const lying = figure.data.filter(trace => trace.type === "bar" && trace.orientation === "h");
  return Math.max(0, ...lying.flatMap(trace => trace.y.map(name => wide(name)))) + 12;
}
function styled(figure, width, height) {
  const layout = figure.layout, look = Object.assign({}, layout);
  const fore = colour("--fore"), line = colour("--line"), panel = colour("--panel"), narrow = width < NARROW;
  const rows = legendRows(figure, width - 20);
  look.paper_bgcolor = look.plot_bgcolor = colour("--back");
  look.font = {color: fore, size: narrow ? 11 : 13, family: "system-ui, DejaVu Sans, sans-serif"};
  look.hoverlabel = {bgcolor: panel, bordercolor: line, font: {color: fore}};
  look.margin = Object.assign({}, layout.margin, narrow ? {l: 48, r: 12} : {});
  look.margin.t = (narrow ? 8 : TOOLS) + rows * LEGEND_ROW + (layout.annotations ? 16 : 0);
  const left = Math.max(look.margin.l, labelRoom(figure));
  look.legend = {orientation: "h", traceorder: "normal", x: 0, xref: "container", xanchor: "left", yref: "container",
                 y: 1 - (narrow ? 0 : TOOLS) / (height + rows * LEGEND_ROW), yanchor: "top"};
  for (const key of Object.keys(layout)) {
    if (!/^[xy]axis/.test(key)) continue;
    const axis = look[key] = Object.assign(
      {gridcolor: line, zerolinecolor: line, linecolor: fore, automargin: true}, layout[key]);
    if (axis.title) {
      const room = key[0] === "x" ? width - left - look.margin.r : height - look.margin.b - 30;
      const named = narrow && key[0] === "y" && left > look.margin.l;
      axis.title = Object.assign({}, axis.title, {text: named ? "" : broken(axis.title.text, room)});
    }
  }
  look.height = height + rows * LEGEND_ROW;
  return look;
}
function drawFigure(place, figure, height) {
  const width = place.clientWidth, look = styled(figure, width, height);
  place.style.height = look.height + "px";
  const data = width < NARROW ? figure.data.map(slim) : figure.data;
  const tools = width < NARROW ? false : "hover";
  Plotly.react(place, data, look, {responsive: false, displaylogo: false, displayModeBar: tools});
}
function slim(trace) {
  const thin = trace.colorbar ? {colorbar: Object.assign({}, trace.colorbar, {thickness: 10})} : {};
  const crowded = trace.type === "bar" && trace.orientation === "v" && trace.x.length > 12 ? {text: []} : {};
  return Object.assign({}, trace, thin, crowded);
}
function draw() {
  for (const [name, figure] of Object.entries(figures)) {
    drawFigure(element(name), figure, Number(element(name).dataset.height));
  }
  document.querySelectorAll(".explorer").forEach(explore);
}
let waiting = 0, lastWidth = window.innerWidth;
dark.addEventListener("change", draw);
window.addEventListener("resize", () => {
  if (window.innerWidth === lastWidth) return;
  lastWidth = window.innerWidth;
  clearTimeout(waiting);
  waiting = setTimeout(draw, 100);
});
function save(text, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], {type: "text/plain"}));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
async function copy(text) {
  try { await navigator.clipboard.writeText(text); } catch (refused) {
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}
for (const field of document.querySelectorAll("input.filter")) {
  field.addEventListener("input", () => {
    const word = field.value.toLowerCase();
    for (const row of field.nextElementSibling.querySelectorAll("tbody tr")) {
      row.hidden = !row.textContent.toLowerCase().includes(word);
    }
  });
}
for (const button of document.querySelectorAll(".code button")) {
  const text = () => button.closest(".code").querySelector("pre").textContent;
  button.addEventListener("click", async () => {
    if (button.dataset.name) return save(text(), button.dataset.name);
    await copy(text());
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  });
}
for (const button of document.querySelectorAll("button.data")) {
  const name = decodeURIComponent(location.pathname.split("/").pop()).replace(/[.]html?$/i, "") + ".json";
  button.addEventListener("click", () => save(element("data").textContent, name));
}
"""
