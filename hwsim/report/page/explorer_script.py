"""The script of points whose axes, colours, marks and facets the reader picks (`hwsim.report.page.explorer`).

It knows rows with named columns; it draws with the function `drawFigure` of `hwsim.report.page.script`.
"""

from __future__ import annotations

EXPLORER_SCRIPT = """
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "star", "triangle-down", "cross"];
const MOST_RINGS = 4, DASHES = ["solid", "10px,10px", "5px,10px", "2px,8px"];  // of points and lines at one place
const NEAR = 0.01;  // of a height: points so near lie over each other
const MOST_EQUAL = 6;  // pairs of equal lines that are named
const MOST_TICKS = 12;  // values of a parameter that an axis names each
const VIRIDIS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [190, 200, 40]];
const said = value => typeof value === "number" ?
  (Number.isInteger(value) ? value.toLocaleString("en") : String(Number(value.toPrecision(4)))) : String(value);
function valuesOf(rows, name) {
  const values = [...new Set(rows.map(row => row[name]).filter(value => value !== null && value !== undefined))];
  return values.every(value => typeof value === "number") ? values.sort((a, b) => a - b) : values;
}
function shades(values, palette) {
  if (values.length <= palette.length && !values.every(value => typeof value === "number")) return palette;
  if (!values.every(value => typeof value === "number")) {
    return values.map((value, i) => `hsl(${Math.round(360 * i / values.length)}, 60%, 50%)`);
  }
  return values.map((value, i) => {
    const at = values.length < 2 ? 0 : i / (values.length - 1) * (VIRIDIS.length - 1), low = Math.floor(at);
    const end = VIRIDIS[Math.min(low + 1, VIRIDIS.length - 1)];
    return `rgb(${VIRIDIS[low].map((part, j) => Math.round(part + (end[j] - part) * (at - low))).join(", ")})`;
  });
}
const usable = value => value !== null && value !== undefined && value !== "";
function withMeans(rows, given, pick) {  // one row for those that repeats alone tell apart
  const picked = [pick.x, pick.y, pick.colour, pick.marks, pick.facet];
  const over = given.repeats.filter(name => !picked.includes(name) && valuesOf(rows, name).length > 1);
  if (!over.length || given.parameters.includes(pick.y)) return rows;
  const apart = given.parameters.filter(name => !over.includes(name)), groups = new Map();
  for (const row of rows) {
    const key = JSON.stringify([...apart.map(name => row[name]), row[pick.x]]);
    groups.set(key, [...(groups.get(key) || []), row]);
  }
  return [...groups.values()].map(group => {
    const ys = group.map(row => row[pick.y]), mean = ys.reduce((sum, y) => sum + y, 0) / ys.length;
    const point = {...group[0], [pick.y]: mean, least: Math.min(...ys), largest: Math.max(...ys), count: ys.length};
    const differing = Object.keys(given.columns).filter(name => name !== pick.y && valuesOf(group, name).length > 1);
    for (const name of differing) delete point[name];
    return point;
  });
}
function explored(given, pick, width) {
  const fits = (value, log) => usable(value) && !(log && typeof value === "number" && value <= 0);
  const known = given.rows.filter(row => usable(row[pick.x]) && usable(row[pick.y]));
  const shown = known.filter(row => fits(row[pick.x], pick.logx) && fits(row[pick.y], pick.logy));
  const rows = withMeans(shown, given, pick);
  const values = name => name ? valuesOf(given.rows, name) : [];
  const colours = values(pick.colour), marks = values(pick.marks);
  const facets = pick.facet ? valuesOf(rows, pick.facet) : [null];
  const paints = shades(colours, given.palette), layout = {annotations: []}, data = [], equal = [];
  const label = name => given.columns[name], inside = part => Math.min(1, Math.max(0, part));
  const places = valuesOf(rows, pick.x).length;
  const follows = name => new Set(rows.map(row => JSON.stringify([row[pick.x], row[name]]))).size === places;
  const apart = given.parameters.filter(name => name !== pick.x && !(given.sizes.includes(name) && follows(name)));
  const across = Math.min(facets.length, width < 600 ? 1 : width < 900 ? 2 : 3);
  const down = Math.ceil(facets.length / across);
  const gap = {x: across > 1 ? 0.05 : 0, y: down > 1 ? Math.min(0.28 / down, 0.12) : 0};
  const size = {x: (1 - gap.x * (across - 1)) / across, y: (1 - gap.y * (down - 1)) / down};
  facets.forEach((facet, number) => {
    const column = number % across, row = Math.floor(number / across), end = number ? String(number + 1) : "";
    const lowest = row === down - 1 || number + across >= facets.length;
    const x = [column * (size.x + gap.x), column * (size.x + gap.x) + size.x];
    const y = [1 - row * (size.y + gap.y) - size.y, 1 - row * (size.y + gap.y)].map(inside);
    const numbers = name => valuesOf(rows, name).every(value => typeof value === "number");
    const kind = (name, log) => numbers(name) ? (log ? "log" : "linear") : "category";
    const ticks = facet === null ? valuesOf(rows, pick.x) : valuesOf(given.rows, pick.x);
    const named = ticks.length <= MOST_TICKS && given.parameters.includes(pick.x) && numbers(pick.x);
    layout["xaxis" + end] = {domain: x.map(inside), anchor: "y" + end, type: kind(pick.x, pick.logx),
      exponentformat: "power", title: lowest ? {text: label(pick.x), standoff: 8} : undefined,
      tickvals: named ? ticks : undefined, ticktext: named ? ticks.map(said) : undefined,
      matches: number ? "x" : undefined};
    layout["yaxis" + end] = {domain: y, anchor: "x" + end, type: kind(pick.y, pick.logy), exponentformat: "power",
      title: column ? undefined : {text: label(pick.y), standoff: 8}, matches: number ? "y" : undefined,
      showticklabels: !column, rangemode: pick.logy ? undefined : "tozero"};
    if (facet !== null) {
      layout.annotations.push({text: `${label(pick.facet)}: ${said(facet)}`, x: x[0], y: y[1], xref: "paper",
        yref: "paper", xanchor: "left", yanchor: "bottom", showarrow: false});
    }
    const lines = new Map();
    for (const point of rows) {
      if (facet !== null && point[pick.facet] !== facet) continue;
      const key = JSON.stringify(given.parameters.includes(pick.x) ? apart.map(name => point[name]) :
        [point[pick.colour], point[pick.marks]]);
      if (!lines.has(key)) lines.set(key, []);
      lines.get(key).push(point);
    }
    const seen = new Map(), drawn = new Map();  // the heights of points, by x; who drew a line first
    for (const points of lines.values()) {
      const first = points[0], shade = pick.colour ? paints[colours.indexOf(first[pick.colour])] : given.palette[0];
      if (typeof first[pick.x] === "number") points.sort((a, b) => a[pick.x] - b[pick.x]);
      const symbol = SYMBOLS[Math.max(0, marks.indexOf(first[pick.marks])) % SYMBOLS.length];
      const along = point => typeof point[pick.x] === "number" ? point[pick.x].toPrecision(3) : point[pick.x];
      const below = points.map(point => (seen.get(along(point)) || []).filter(
        height => Math.abs(height - point[pick.y]) <= NEAR * Math.abs(point[pick.y])).length);
      const least = Math.min(...below, MOST_RINGS);
      points.forEach(point => seen.set(along(point), [...(seen.get(along(point)) || []), point[pick.y]]));
      const same = points.map(point => `${point[pick.x]}|${point[pick.y]}`).sort().join(";");
      const name = [pick.colour, pick.marks].filter(Boolean).map(column => said(first[column]));
      const own = [...new Set(name), ...(facet === null ? [] : [said(facet)])].join(", ");
      if (drawn.has(same) && drawn.get(same) !== own) equal.push(`${own} = ${drawn.get(same)}`);
      else drawn.set(same, own);
      const joined = given.parameters.includes(pick.x) && points.length > 1 && typeof first[pick.x] === "number";
      data.push({type: "scatter", mode: joined ? "lines+markers" : "markers", xaxis: "x" + end, yaxis: "y" + end,
        x: points.map(point => point[pick.x]), y: points.map(point => point[pick.y]), showlegend: false,
        line: {color: shade, width: 1.4, dash: DASHES[Math.min(least, DASHES.length - 1)]},
        marker: {color: shade, size: below.map(count => 8 + 5 * Math.min(count, MOST_RINGS)),
          line: {width: below.map(count => count ? 1.6 : 0)},
          symbol: below.map(count => count ? `${symbol}-open` : symbol)},
        error_y: points.some(point => point.count > 1) ? {type: "data", symmetric: false, thickness: 1.2, width: 3,
          array: points.map(point => point.count > 1 ? point.largest - point[pick.y] : 0),
          arrayminus: points.map(point => point.count > 1 ? point[pick.y] - point.least : 0)} : undefined,
        text: points.map(point => [...Object.keys(given.columns).filter(name => usable(point[name])).map(
          name => `${label(name)}: ${said(point[name])}`), ...(point.count > 1 ?
          [`mean of ${point.count}: ${said(point.least)} to ${said(point.largest)}`] : [])].join("<br>")),
        hovertemplate: "%{text}<extra></extra>"});
    }
  });
  const entry = (name, marker) => data.push({type: "scatter", mode: "markers", x: [null], y: [null], name: name,
    showlegend: true, hoverinfo: "skip", marker: Object.assign({size: 9}, marker)});
  colours.forEach((value, i) => entry(`${label(pick.colour)}: ${said(value)}`, {color: paints[i], symbol: "circle"}));
  if (pick.marks !== pick.colour) {
    marks.forEach((value, i) => entry(`${label(pick.marks)}: ${said(value)}`,
      {color: "#80868d", symbol: SYMBOLS[i % SYMBOLS.length]}));
  }
  layout.showlegend = data.some(trace => trace.showlegend);
  layout.margin = {l: 70, r: 24, t: 34, b: 56};
  if (!layout.annotations.length) delete layout.annotations;
  const told = [...new Set(equal)], more = told.length - MOST_EQUAL;
  const notes = told.length ? ["The same points, drawn as rings and dashes around each other: " +
    `${told.slice(0, MOST_EQUAL).join("; ")}${more > 0 ? `; and ${more} more` : ""}.`] : [];
  const counts = [...new Set(rows.map(row => row.count).filter(count => count > 1))];
  if (counts.length) {
    const over = given.repeats.filter(name => valuesOf(shown, name).length > 1).map(label).join(", ");
    notes.push(`Each point is the mean over ${over} (${counts.sort((a, b) => a - b).join(" or ")} runs), with a bar ` +
      "from the least to the largest.");
  }
  if (known.length > shown.length) {
    notes.push(`Not drawn: ${said(known.length - shown.length)} points at 0 or below, which a logarithmic axis ` +
      "does not show.");
  }
  const note = notes.join(" ");
  return {figure: {data: data, layout: layout}, height: down > 1 ? 80 + 250 * down : 440, note: note};
}
function explore(place) {
  const given = JSON.parse(place.querySelector("script").textContent), pick = {};
  for (const field of place.querySelectorAll("select, input")) {
    pick[field.name] = field.type === "checkbox" ? field.checked : field.value;
    field.onchange = () => explore(place);
  }
  const plot = place.querySelector(".plot"), made = explored(given, pick, plot.clientWidth);
  drawFigure(plot, made.figure, made.height);
  place.querySelector(".equal").textContent = made.note;
}
"""
