// The theme's choice of light or dark for tables (class "dark"); tables that sort; curves, heads, outputs and differing settings of one run or of two.
"use strict";

const light = { dark: "dark", light: "light" };
const isDark = () => (light[document.body.dataset.theme] ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const root = document.querySelector("script[src$='headdiv.js'], script[src*='headdiv.js?']").src.replace(/_static\/.*/, "");
const loaded = {};
window.headdivRun = (name, data) => { loaded[name] = data; };

const load = (name) => new Promise((resolve, reject) => {
  if (loaded[name]) return resolve(loaded[name]);
  const script = document.createElement("script");
  Object.assign(script, { src: `${root}_static/runs/${encodeURIComponent(name)}.js`, onload: () => resolve(loaded[name]), onerror: reject });
  document.head.append(script);
});

function make(parent, tag, text, attributes = {}) {
  const element = Object.assign(document.createElement(tag), attributes);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

// Text for Plotly, which reads tags in it.
const plainText = (value) => String(value).replace(/[&<>]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[sign]);
const ink = () => ({ paper_bgcolor: "transparent", plot_bgcolor: "transparent", font: { size: 11, color: isDark() ? "#ccc" : "#333" } });
const grid = () => ({ gridcolor: isDark() ? "#444" : "#ddd", zeroline: false, automargin: true });
const plot = (parent, traces, layout) => {
  const place = make(parent, "div");
  Plotly.newPlot(place, traces, { ...ink(), ...layout }, { responsive: true, displaylogo: false, displayModeBar: false });
};

function table(parent, head, rows) {
  const element = make(make(parent, "div", undefined, { className: "wide" }), "table", undefined, { className: "small" });
  const line = (cells, tag) => { const row = make(element, "tr"); cells.forEach((cell) => make(row, tag, cell)); };
  line(head, "th");
  rows.forEach((row) => line(row, "td"));
}

// The keys of the runs whose values differ, with the values.
function differing(runs, part) {
  const keys = new Set(runs.flatMap((run) => Object.keys(run[part])));
  const rows = [...keys].map((key) => [key, ...runs.map((run) => run[part][key] ?? "–")]);
  return rows.filter(([, one, other]) => String(one) !== String(other));
}

function drawCurves(parent, runs) {
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.curves)))];
  const across = parent.clientWidth < 600 ? 1 : 3, down = Math.ceil(names.length / across);
  const layout = { grid: { rows: down, columns: across, pattern: "independent", ygap: 0.4, xgap: 0.2 }, height: 80 + 190 * down, annotations: [], showlegend: runs.length > 1, legend: { orientation: "h", x: 0, y: 1, yanchor: "top", yref: "container" }, margin: { t: 70, l: 40, r: 10, b: 30 } };
  const traces = [];
  names.forEach((name, i) => {
    const n = i ? i + 1 : "";
    layout[`xaxis${n}`] = { ...grid(), tickformat: "d" };
    layout[`yaxis${n}`] = grid();
    layout.annotations.push({ text: `${plainText(name)}, by epoch`, xref: `x${n} domain`, yref: `y${n} domain`, x: 0, y: 1.18, showarrow: false });
    runs.forEach((run, k) => {
      const y = run.curves[name];
      if (y) traces.push({ y, x: y.map((_, epoch) => epoch + 1), name: plainText(run.label), xaxis: `x${n}`, yaxis: `y${n}`, mode: "lines+markers", line: { color: ["#2f7fc1", "#e07b39"][k] }, showlegend: !i });
    });
  });
  plot(parent, traces, layout);
}

// Words of an attention map stand at its axes, heads of a similarity map have their numbers there; one bar has the colours of all maps.
function drawMaps(parent, found, high, bar) {
  const names = Object.keys(found.panels), words = found.x !== undefined, width = parent.clientWidth;
  const across = Math.max(1, Math.min(names.length, Math.floor(width / (words ? 230 : 150)))), down = Math.ceil(names.length / across);
  const longest = words ? Math.max(...[...found.x, ...found.y].map((word) => word.length)) : 1, side = Math.min(90, 6 * longest + 12);
  const row = (words ? 165 : 120) + side, column = (width - side) / across, height = 40 + down * row, title = { showarrow: false };
  const layout = { grid: { rows: down, columns: across, pattern: "independent", ygap: (side + 25) / row, xgap: (side + 12) / column }, height, annotations: [], margin: { t: 30, l: side, r: 10, b: side } };
  const colours = found.low < 0 ? [[0, "#2166ac"], [0.5, "#f7f7f7"], [1, "#b2182b"]] : "Viridis";
  const traces = names.map((name, i) => {
    const n = i ? i + 1 : "", z = found.panels[name];
    const x = found.x ?? z[0].map((_, k) => `${k + 1}`), y = found.y ?? z.map((_, k) => `${k + 1}`);
    const ticks = (labels) => ({ showgrid: false, zeroline: false, tickmode: "array", tickvals: labels.map((_, k) => k), ticktext: labels.map(plainText), tickfont: { size: 9 }, ticks: "" });
    layout[`xaxis${n}`] = { ...ticks(x), tickangle: words ? -90 : 0 };
    layout[`yaxis${n}`] = { ...ticks(y), autorange: "reversed" };
    layout.annotations.push({ ...title, text: plainText(name), xref: `x${n} domain`, yref: `y${n} domain`, x: 0, y: 1, yanchor: "bottom" });
    const hover = y.map((row) => x.map((column) => plainText(`${row} → ${column}`))); // words may repeat: axes count
    return { type: "heatmap", z, text: hover, hovertemplate: "%{text}: %{z:.3f}<extra></extra>", zmin: found.low, zmax: high, colorscale: colours, xaxis: `x${n}`, yaxis: `y${n}`, showscale: bar && !i, colorbar: { thickness: 8 } };
  });
  plot(parent, traces, layout);
}

function drawHeads(parent, runs) {
  const views = [...new Set(runs.flatMap((run) => Object.keys(run.heads)))];
  if (!views.length) return;
  const select = make(make(parent, "label", "Show "), "select");
  views.forEach((view) => make(select, "option", view, { value: view }));
  if (views.some((view) => view.startsWith("attention"))) select.value = views.find((view) => view.startsWith("attention"));
  const side = make(parent, "div", undefined, { className: "side" });
  const draw = () => {
    side.replaceChildren();
    const halves = runs.map(() => make(side, "div")); // both before either is drawn: a drawing asks for its width
    const stored = runs.map((run) => run.heads[select.value]), high = Math.max(...stored.map((found) => found?.high ?? -Infinity));
    const last = stored.findLastIndex((found) => found);
    runs.forEach((run, k) => {
      make(halves[k], "p", stored[k] ? run.label : `${run.label}: not stored`);
      if (stored[k]) drawMaps(halves[k], stored[k], high, k === last);
    });
  };
  select.onchange = draw;
  draw();
}

function show(place, runs) {
  place.replaceChildren();
  const labels = runs.map((run) => run.label), part = (title) => make(place, "h2", title);
  if (runs.length > 1) {
    part("Scores");
    const scores = [...new Set(runs.flatMap((run) => Object.keys(run.scores)))];
    table(place, ["", ...labels], scores.map((name) => [name, ...runs.map((run) => run.scores[name] ?? "–")]));
    part("Settings that differ");
    const settings = differing(runs, "settings");
    if (settings.length) table(place, ["", ...labels], settings); else make(place, "p", "None; at most the seed.");
  }
  if (runs.length > 1) part("Curves");
  drawCurves(place, runs);
  if (runs.length > 1) part("Heads");
  drawHeads(place, runs);
  const fullest = [...runs].sort((one, other) => other.examples.columns.length - one.examples.columns.length)[0], most = fullest.examples;
  if (runs.length > 1 && runs.some((run) => run.examples.data.length)) {
    part("First outputs for the test set");
    const inputs = (row) => String(row.slice(0, -1));
    const output = (run, row, i) => {
      const own = run.examples.data[i];
      if (!own) return "–";
      const same = own.length > 1 ? inputs(own) === inputs(row) : run.experiment === fullest.experiment;  // some runs keep no inputs
      return same ? own.at(-1) : "(another test set)";
    };
    table(place, [...most.columns.slice(0, -1), ...labels], most.data.map((row, i) => [...row.slice(0, -1), ...runs.map((run) => output(run, row, i))]));
  }
}

// Every table with "data-choices" sorts; one with such columns is filtered by their values, and searched. What stands after "?" in the page's
// address, between "&", filters from the start: the column that has these values, or else all of them; "all" filters nothing. A table with
// "data-opens" is paged, and filtered by that where the address has nothing.
async function startTables() {
  for (const element of document.querySelectorAll("table[data-choices]")) {
    const { default: DataTable } = await window._itables, targets = JSON.parse(element.dataset.choices), filtered = targets.length > 0;
    const length = Number(element.dataset.length), paged = length > 0, scroller = element.closest(".wide");
    const asked = location.search.slice(1) || element.dataset.opens || "";
    scroller?.classList.remove("wide"); // the table scrolls by itself
    const api = new DataTable(element, {
      paging: paged, pageLength: length, lengthMenu: [length, 100, { label: "All", value: -1 }], order: [], scrollX: true,
      layout: { topStart: filtered ? "info" : null, topEnd: filtered ? "search" : null, bottomStart: paged ? "pageLength" : null, bottomEnd: paged ? "paging" : null },
      columnDefs: filtered ? [{ targets, columnControl: [["searchList"]] }] : [],
    });
    const values = {};
    for (const part of filtered ? asked.split("&").filter((one) => one && one !== "all").map(decodeURIComponent) : []) {
      const column = targets.find((at) => api.column(at).data().toArray().includes(part));
      if (column !== undefined) (values[column] ??= []).push(part); else if (location.search) api.search(part);
    }
    for (const [column, wanted] of Object.entries(values)) api.column(Number(column)).search((value) => wanted.includes(value));
    api.draw();
  }
}

function start() {
  const place = document.getElementById("run-data"), form = document.getElementById("choose");
  if (!place) return;
  let names = [place.dataset.run];
  const draw = () => Promise.all(names.map(load)).then((runs) => show(place, runs));
  if (form) {
    const selects = [...form.querySelectorAll("select")], asked = location.search.slice(1).split("&").map(decodeURIComponent);
    selects.forEach((select, i) => { if (asked[i]) select.value = asked[i]; });
    form.onchange = () => { names = selects.map((select) => select.value); draw(); };
    names = selects.map((select) => select.value);
  }
  draw();
  new MutationObserver(draw).observe(document.body, { attributeFilter: ["data-theme"] });
}

document.addEventListener("DOMContentLoaded", () => {
  const follow = () => { document.documentElement.classList.toggle("dark", isDark()); };
  follow();
  new MutationObserver(follow).observe(document.body, { attributeFilter: ["data-theme"] });
  startTables();
  start();
});
