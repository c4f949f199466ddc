"use strict";
// The table of rows. All texts are put in as text nodes; no markup is ever made from them.
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const meta = read("meta");
  const rows = read("rows");
  const word = meta.word;
  const SVG = "http://www.w3.org/2000/svg";
  const PAGE = 50;

  const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const svg = (tag, attributes, ...children) =>
    fill(document.createElementNS(SVG, tag), attributes, children);
  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {}))
      if (value !== null && value !== undefined) node.setAttribute(name, value);
    for (const child of children.flat())
      if (child !== null && child !== undefined)
        node.append(child instanceof Node ? child : document.createTextNode(String(child)));
    return node;
  }
  const said = (text, values) => text.replace(/\{(\w+)(?::[^}]*)?\}/g, (_, name) => values[name]);
  const fixed = (value, digits) => (value === undefined ? "–" : value.toFixed(digits));
  const grade = (value) => (value === undefined ? "none" : Math.min(4, Math.max(0, Math.floor(value * 5))));
  const position = (cell, criterion) =>
    cell.score === undefined || criterion.high <= criterion.low
      ? undefined
      : (cell.score - criterion.low) / (criterion.high - criterion.low);
  const warned = (codes) => (codes || []).map((code) => el("span", {}, meta.warning[code] || code));

  // The same picture as in the page above: a bar for each level.
  function bars(probs, levels, big) {
    const wide = big ? 32 : 8, tall = big ? 56 : 20, foot = big ? 30 : 0, top = big ? 14 : 0;
    const names = levels.map((v) => String(v));
    const told = names.map((n, i) => `${n}: ${(probs[i] / 10).toFixed(1)}%`).join(", ");
    const shown = svg("svg", {
      class: big ? "levels" : "mini", role: "img", "aria-label": told,
      viewBox: `0 0 ${wide * probs.length} ${top + tall + foot / 2}`,
      width: wide * probs.length, height: top + tall + foot / 2,
    });
    probs.forEach((p, i) => {
      const high = Math.max(0, Math.min(1, p / 1000)) * tall;
      shown.append(svg("rect", { class: "back", x: i * wide + 1, y: top, width: wide - 2, height: tall }));
      shown.append(svg("rect", { class: "bar", x: i * wide + 1, y: top + tall - high, width: wide - 2, height: high }));
      if (big) {
        const x = i * wide + wide / 2;
        shown.append(svg("text", { class: "mid", x, y: 10 }, p >= 5 ? `${Math.round(p / 10)}%` : ""));
        shown.append(svg("text", { class: "mid", x, y: top + tall + 12 }, names[i]));
      }
    });
    return shown;
  }

  const worst = (row) => {
    let found = null, least = Infinity;
    row.cells.forEach((cell, i) => {
      const value = position(cell, meta.criteria[i]);
      if (cell.reason && (value === undefined ? 2 : value) < least) {
        least = value === undefined ? 2 : value;
        found = cell.reason;
      }
    });
    return found || row.error || (row.cells.find((c) => c.error) || {}).error || "";
  };
  const everyWarning = (row) => [...new Set([...(row.warnings || []), ...row.cells.flatMap((c) => c.warnings || [])])];

  const several = meta.criteria.length > 1;
  const columns = [
    { name: word.id, key: (row) => row.id, kind: "text" },
    ...(several ? [{ name: word.overall, key: (row) => row.score, kind: "number" }] : []),
    ...meta.criteria.map((c, i) => ({ name: c.title, key: (row) => row.cells[i].score, kind: "number" })),
    { name: word.coverage, key: (row) => least(row.cells.map((c) => c.coverage)), kind: "number", more: "wide" },
    { name: word.reason, key: worst, kind: "text", more: "wide" },
  ];
  function least(values) {
    const known = values.filter((v) => v !== undefined);
    return known.length ? Math.min(...known) : undefined;
  }

  const state = { query: "", show: "all", sort: -1, up: true, page: 0, open: new Set() };
  const hay = new Map();
  const folded = (text) => String(text).normalize("NFC").toLocaleLowerCase();
  function haystack(row) {
    let found = hay.get(row);
    if (found === undefined) {
      const texts = [row.id, row.error, row.group, row.sheet, ...(row.figures || [])];
      for (const code of everyWarning(row)) texts.push(code, meta.warning[code]);
      for (const cell of row.cells) {
        texts.push(cell.reason, cell.error);
        for (const unit of cell.units || []) texts.push(unit.text, unit.reason);
        for (const juror of cell.jurors || []) texts.push(juror.reason);
      }
      found = folded(texts.filter((t) => t).join("\n"));
      hay.set(row, found);
    }
    return found;
  }
  const unscored = (row) => row.status === "unscored" || row.cells.some((c) => c.status === "unscored");
  const shows = {
    all: () => true,
    unscored,
    warned: (row) => everyWarning(row).length > 0,
  };
  const order = new Intl.Collator(document.documentElement.lang, { numeric: true });
  function chosen() {
    const words = folded(state.query).split(/\s+/).filter((w) => w);
    const found = rows.filter((row) => shows[state.show](row) && words.every((w) => haystack(row).includes(w)));
    if (state.sort < 0) return found;
    const { key, kind } = columns[state.sort];
    const empty = (v) => v === undefined || v === "";
    const keyed = found.map((row, i) => ({ row, i, value: key(row) }));
    keyed.sort((a, b) => {
      if (empty(a.value) || empty(b.value)) return empty(a.value) - empty(b.value) || a.i - b.i;
      const way = kind === "number" ? a.value - b.value : order.compare(a.value, b.value);
      return (state.up ? way : -way) || a.i - b.i;
    });
    return keyed.map((k) => k.row);
  }

  const status = (cell) =>
    cell.status === "not_applicable" ? word.not_applicable : cell.status ? word.unscored : "–";
  function scoreCell(cell, criterion) {
    const value = position(cell, criterion);
    const shown = cell.score === undefined ? status(cell) : cell.score.toFixed(2);
    return el("td", { class: "score" },
      el("div", {}, el("span", { class: `value q${grade(value)}` }, shown),
        cell.probs && criterion.levels.length === cell.probs.length ? bars(cell.probs, criterion.levels) : null));
  }
  function line(row, number) {
    const open = state.open.has(row);
    const button = el("button", { type: "button", class: "open", "aria-expanded": open, title: word.page_details },
      row.id, row.repeat ? ` #${row.repeat}` : "");
    button.addEventListener("click", () => {
      state.open.has(row) ? state.open.delete(row) : state.open.add(row);
      draw();
      const again = document.querySelectorAll("#table button.open")[number];
      if (again) again.focus();
    });
    const total = el("td", { class: "score" },
      el("div", {}, el("span", { class: `value q${grade(row.score)}` },
        row.score === undefined ? status(row) : row.score.toFixed(3))));
    const codes = everyWarning(row);
    return el("tr", { class: open ? "opened" : null },
      el("th", { scope: "row" }, button),
      several ? total : null,
      row.cells.map((cell, i) => scoreCell(cell, meta.criteria[i])),
      el("td", { class: "wide number" }, fixed(least(row.cells.map((c) => c.coverage)), 3)),
      el("td", { class: "wide why" }, codes.length ? el("p", { class: "flags" }, warned(codes)) : null,
        el("p", {}, worst(row))));
  }

  function detail(row) {
    const places = [
      [word.page_sheet, row.sheet], [word.page_row, row.row], [word.page_group, row.group],
    ].filter(([, v]) => v !== undefined).map(([name, v]) => `${name} ${v}`);
    return el("tr", { class: "detail" }, el("td", { colspan: columns.length },
      places.length ? el("p", { class: "note" }, places.join(" · ")) : null,
      row.error ? el("p", { class: "error" }, row.error) : null,
      row.figures ? el("p", { class: "flags" }, el("span", {}, `${word.page_figures}: ${row.figures.join(", ")}`)) : null,
      el("div", { class: "grid" }, row.cells.map((cell, i) => criterionDetail(cell, meta.criteria[i])))));
  }
  function criterionDetail(cell, criterion) {
    const told = [
      cell.sd !== undefined ? `${word.page_sd} ${cell.sd.toFixed(2)}` : null,
      cell.se !== undefined ? `${word.page_se} ${cell.se.toFixed(2)}` : null,
      cell.raw !== undefined ? `${word.page_raw} ${cell.raw.toFixed(2)}` : null,
      cell.spread !== undefined ? `${word.page_spread} ${cell.spread.toFixed(2)}` : null,
      cell.coverage !== undefined ? `${word.coverage} ${cell.coverage.toFixed(3)}` : null,
      cell.method ? `${word.method} ${cell.method}` : null,
    ].filter((t) => t);
    return el("article", { class: "panel" },
      el("h3", {}, criterion.title),
      el("p", { class: "mean" }, el("b", {}, cell.score === undefined ? status(cell) : cell.score.toFixed(2)),
        cell.score === undefined ? null : el("span", { class: "of" }, " " + said(word.page_of, { high: criterion.high }))),
      cell.probs && criterion.levels.length === cell.probs.length ? bars(cell.probs, criterion.levels, true) : null,
      cell.error ? el("p", { class: "error" }, cell.error) : null,
      cell.warnings ? el("p", { class: "flags" }, warned(cell.warnings)) : null,
      cell.reason ? el("p", { class: "reason" }, cell.reason) : null,
      cell.units ? units(cell) : null,
      cell.jurors ? jurors(cell, criterion) : null,
      el("p", { class: "note" }, told.join(" · ")));
  }
  function units(cell) {
    const lines = cell.units.map((unit) => el("tr", {},
      el("td", { class: "number" }, el("span", { class: `value q${grade(unit.p)}` }, fixed(unit.p, 2))),
      el("td", {}, el("p", { class: "reason" }, unit.text),
        unit.reason ? el("p", { class: "note" }, unit.reason) : null,
        unit.error ? el("p", { class: "error" }, unit.error) : null)));
    return [
      el("table", { class: "inner" },
        el("tr", {}, el("th", { scope: "col" }, word.page_units_p), el("th", { scope: "col" }, word.page_units)), lines),
      cell.more_units ? el("p", { class: "note" }, said(word.page_more_units, { n: cell.more_units })) : null,
    ];
  }
  function jurors(cell, criterion) {
    const lines = cell.jurors.map((juror) => el("tr", {},
      el("td", {}, el("p", { class: "note" }, juror.judge),
        el("div", { class: "both" },
          el("span", { class: `value q${grade(position(juror, criterion))}` }, fixed(juror.score, 2)),
          juror.probs && juror.probs.length === criterion.levels.length ? bars(juror.probs, criterion.levels) : null),
        juror.reason ? el("p", { class: "reason" }, juror.reason) : null,
        juror.error ? el("p", { class: "error" }, juror.error) : null)));
    return el("table", { class: "inner" }, el("tr", {}, el("th", { scope: "col" }, word.page_jurors)), lines);
  }

  const box = document.getElementById("table");
  const search = el("input", { type: "search", id: "search", placeholder: word.page_search_hint, autocomplete: "off", "aria-label": word.page_search });
  const show = el("select", { id: "show", "aria-label": word.page_show },
    Object.keys(shows).map((name) => el("option", { value: name },
      `${word["page_show_" + name]} (${rows.filter(shows[name]).length.toLocaleString()})`)));
  const range = el("span", { class: "range", role: "status" });
  const back = el("button", { type: "button", id: "back" }, "← ", word.page_previous);
  const next = el("button", { type: "button", id: "next" }, word.page_next, " →");
  const head = el("tr", {}, columns.map((column, i) => {
    const button = el("button", { type: "button" }, column.name, el("span", { class: "arrow", "aria-hidden": "true" }));
    button.addEventListener("click", () => {
      if (state.sort !== i) { state.sort = i; state.up = true; }
      else if (state.up) state.up = false;
      else state.sort = -1;
      state.page = 0;
      draw();
    });
    return el("th", { scope: "col", class: column.more || null }, button);
  }));
  const body = el("tbody", {});
  const controls = el("div", { class: "controls" }, search, show, el("span", { class: "pages" }, back, range, next));
  box.append(controls, el("div", { class: "scroll" }, el("table", { class: "all" }, el("thead", {}, head), body)));

  let waiting = 0;
  search.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { state.query = search.value; state.page = 0; draw(); }, 120);
  });
  show.addEventListener("change", () => { state.show = show.value; state.page = 0; draw(); });
  back.addEventListener("click", () => { state.page -= 1; draw(); });
  next.addEventListener("click", () => { state.page += 1; draw(); });

  function draw() {
    const found = chosen();
    const last = Math.max(0, Math.ceil(found.length / PAGE) - 1);
    state.page = Math.min(Math.max(0, state.page), last);
    const from = state.page * PAGE;
    const some = found.slice(from, from + PAGE);
    columns.forEach((column, i) => {
      const cell = head.children[i];
      cell.setAttribute("aria-sort", state.sort !== i ? "none" : state.up ? "ascending" : "descending");
      cell.querySelector(".arrow").textContent = state.sort !== i ? "" : state.up ? " ▲" : " ▼";
    });
    body.replaceChildren(...some.flatMap((row, i) => (state.open.has(row) ? [line(row, i), detail(row)] : [line(row, i)])));
    if (!some.length) body.append(el("tr", {}, el("td", { colspan: columns.length, class: "empty" }, word.page_none)));
    range.textContent = found.length
      ? said(word.page_range, { from: (from + 1).toLocaleString(), to: (from + some.length).toLocaleString(), n: found.length.toLocaleString() })
      : "0";
    back.disabled = state.page === 0;
    next.disabled = state.page === last;
  }
  draw();
})();
