// How rows, times and totals are drawn.

let words = "",
  from = 0,
  to = Math.max(data.took, 0.001),
  width = 400;
const x = (s) => ((s - from) / (to - from)) * width;

function glyph(state, cx, cy, r) {
  if (state === "failed")
    return svg("path", {
      class: "bad",
      d: `M${cx - r} ${cy - r}L${cx + r} ${cy + r}M${cx + r} ${cy - r}L${cx - r} ${cy + r}`,
    });
  return svg("circle", { class: state === "cancelled" || state === "unfinished" ? "gone" : "ok", cx, cy, r });
}

function stems(item) {
  // Of what is nested deeply, the outermost guides make room for the name.
  const { node } = item,
    hidden = Math.max(0, item.depth - DEEP),
    depth = item.depth - hidden,
    ends = item.ends.slice(hidden);
  const step = 16,
    mid = ROW / 2,
    left = depth * step + 8;
  const drawing = svg("svg", { width: left + 16, height: ROW, "aria-hidden": "true" });
  ends.forEach((end, n) => {
    const sx = n * step + 8,
      own = n === depth - 1;
    if (!end || own)
      drawing.append(
        svg("path", {
          class: "guide",
          d: `M${sx} 0V${own && end ? mid : ROW}${own ? `M${sx} ${mid}H${left - 5}` : ""}`,
        }),
      );
  });
  if (canOpen(item))
    drawing.append(
      svg("path", {
        class: "fold",
        d: isOpen(node) ? `M${left - 4} ${mid - 3}h8l-4 6z` : `M${left - 3} ${mid - 4}v8l6-4z`,
      }),
    );
  else drawing.append(svg("circle", { class: "fold", cx: left, cy: mid, r: 1.5 }));
  return drawing;
}
const canOpen = (item) => !item.alone && (item.node.own.length > 1 || item.node.below.length > 0);

// A chain of exchanges: a dot for each run, in the order in which one continued the other.
function chain(node) {
  const shown = node.own.slice(-DOTS),
    cut = node.own.length - shown.length,
    mid = ROW / 2;
  const drawing = svg("svg", { width: 92, height: ROW, "aria-hidden": "true" });
  if (!shown.length) return drawing;
  const start = cut ? 22 : 6;
  if (cut) drawing.append(svg("text", { x: 0, y: mid + 4 }, `+${cut}`));
  if (shown.length > 1)
    drawing.append(svg("path", { class: "stem", d: `M${start} ${mid}H${start + (shown.length - 1) * 8}` }));
  shown.forEach((run, n) => drawing.append(glyph(stateOf(run), start + n * 8, mid, 2.7)));
  if (node.kind === "branch") {
    const end = start + shown.length * 8;
    if (node.state === "failed" && stateOf(shown[shown.length - 1]) !== "failed")
      drawing.append(glyph("failed", end, mid, 2.7));
  }
  return drawing;
}

const box = (kind, a, b, mid, tall) => {
  const left = Math.max(x(a), -4),
    right = Math.min(x(b), width + 4);
  if (right < 0 || left > width || b < a) return null;
  return svg("rect", {
    class: kind,
    x: left.toFixed(1),
    y: mid - tall / 2,
    width: Math.max(right - left, 0.8).toFixed(1),
    height: tall,
  });
};

// Waiting is thin, sending is taller, streaming is tallest: the three differ without their colours.
function phases(attempt) {
  const begun = attempt.at ?? (attempt.end ?? 0) - (attempt.duration_s ?? 0);
  const end = attempt.duration_s !== undefined ? begun + attempt.duration_s : (attempt.end ?? data.took);
  const first = attempt.first_event_s !== undefined ? begun + attempt.first_event_s : end;
  return { queued: begun - (attempt.waited_s || 0), begun, first, end };
}

function bars(list, mid) {
  const drawn = [];
  for (const run of list) {
    for (const [at, wait] of run.pauses || [])
      if (x(at + wait) >= 0 && x(at) <= width)
        drawn.push(
          svg("path", {
            class: "pause",
            d: `M${Math.max(x(at), 0).toFixed(1)} ${mid}H${Math.min(x(at + wait), width).toFixed(1)}`,
          }),
        );
    const attempts = run.attempts || [];
    if (!attempts.length && run.at !== undefined) drawn.push(box("wait", run.at, run.end ?? data.took, mid, 3));
    for (const attempt of attempts) {
      const { queued, begun, first, end } = phases(attempt),
        lost = attempt.status === "succeeded" ? "" : " lost";
      if (begun > queued) drawn.push(box("wait", queued, begun, mid, 3));
      drawn.push(box(`send${lost}`, begun, first, mid, 7));
      if (end > first) drawn.push(box(`flow${lost}`, first, end, mid, 13));
      if (attempt.status === "failed" && x(end) >= 0 && x(end) <= width)
        drawn.push(glyph("failed", Math.min(Math.max(x(end), 4), width - 4), mid, 3.5));
    }
  }
  return drawn;
}

// How many attempts were in each phase, on the average of each step of time, as areas on top of each other.
function area(list, height) {
  const bins = Math.max(1, Math.round(width / 2)),
    layers = ["flow", "send", "wait"].map(() => new Float64Array(bins + 2));
  const parts = ["flow", "send", "wait"].map(() => new Float64Array(bins));
  const add = (layer, a, b) => {
    const start = Math.max(0, (x(a) / width) * bins),
      end = Math.min(bins, (x(b) / width) * bins);
    if (end <= start) return;
    const first = Math.min(bins - 1, Math.floor(start)),
      last = Math.min(bins - 1, Math.floor(end));
    if (first === last) parts[layer][first] += end - start;
    else {
      parts[layer][first] += first + 1 - start;
      parts[layer][last] += end - last;
      layers[layer][first + 1] += 1;
      layers[layer][last] -= 1;
    }
  };
  for (const run of list)
    for (const attempt of run.attempts || []) {
      const { queued, begun, first, end } = phases(attempt);
      add(2, queued, begun);
      add(1, begun, first);
      add(0, first, end);
    }
  const step = width / bins;
  const levels = layers.map((layer, which) => {
    const top = new Float64Array(bins);
    for (let n = 0, level = 0; n < bins; n++) {
      level += layer[n];
      top[n] = level + parts[which][n];
    }
    return top;
  });
  const stacked = levels[1].map((value, n) => value + levels[0][n]);
  // Thousands may wait for few places, so waiting has a band and a scale of its own.
  const split = Math.round(height * 0.36);
  const outline = (top, most, floor, tall) => {
    const y = (value) => (floor - (value / most) * tall).toFixed(1);
    let path = `M0 ${floor}`;
    for (let n = 0; n < bins; n++) path += `V${y(top[n])}H${((n + 1) * step).toFixed(1)}`;
    return `${path}V${floor}Z`;
  };
  const high = (top) => top.reduce((most, value) => Math.max(most, value), 1);
  return [
    svg("path", { class: "wait", d: outline(levels[2], high(levels[2]), split - 1, split - 3) }),
    svg("path", { class: "send", d: outline(stacked, high(stacked), height - 2, height - split - 3) }),
    svg("path", { class: "flow", d: outline(levels[0], high(stacked), height - 2, height - split - 3) }),
  ];
}

// The most attempts that were in a phase at one moment.
function busiest(list, from, to) {
  const steps = list
    .flatMap((run) =>
      (run.attempts || []).flatMap((attempt) => {
        const at = phases(attempt);
        return at[to] > at[from]
          ? [
              [at[from], 1],
              [at[to], -1],
            ]
          : [];
      }),
    )
    .sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let now = 0,
    most = 0;
  for (const [, change] of steps) most = Math.max(most, (now += change));
  return most;
}

function ticks() {
  const span = to - from,
    rough = span / Math.max(3, width / 80),
    power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough),
    found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
  const digits = Math.max(0, -Math.floor(Math.log10(step)));
  return found.map((at) => ({ at, text: `${at.toFixed(digits)} s` }));
}
// Each tick's words stand to its right; the last ones end with the axis, and go where they would meet those before.
function marks() {
  const placed = [];
  for (const { at, text } of ticks()) {
    const wide = text.length * 7 + 2,
      left = Math.min(x(at) + 3, width - wide),
      before = placed[placed.length - 1];
    if (left >= 0 && (!before || left >= before.right + 8)) placed.push({ left, right: left + wide, text });
  }
  return placed;
}
const rules = (height) =>
  ticks().map(({ at }) => svg("path", { class: "tick", d: `M${x(at).toFixed(1)} 0V${height}` }));

const time = (height, ...drawn) =>
  svg("svg", { class: "time", height, "aria-hidden": "true" }, rules(height), ...drawn);

function numbers(sum) {
  const cell = (value, bounded) =>
    el(
      "div",
      { class: `n wide${value === null ? " none" : ""}`, role: "gridcell" },
      value === null
        ? "–"
        : `${bounded ? "≥\u2009" : ""}${value >= 1e6 ? `${(value / 1e6).toFixed(2)} M` : count(value)}`,
    );
  return [
    cell(sum.sent, sum.bounded.input_tokens),
    el(
      "div",
      { class: `n wide${sum.share === null ? " none" : ""}`, role: "gridcell" },
      sum.share === null ? "–" : `${Math.round(sum.share * 100)} %`,
    ),
    cell(sum.output_tokens, sum.bounded.output_tokens),
  ];
}

function drawRow(item, n) {
  const { node } = item;
  node.sum ||= total(node.all);
  const group = node.kind === "nursery" || node.kind === "more";
  const line = el(
    "div",
    {
      class: `row${node === chosen ? " chosen" : ""}${n === active ? " active" : ""}`,
      role: "row",
      id: `row-${n}`,
      "aria-level": item.depth + 1,
      "aria-rowindex": n + 3,
      "aria-setsize": item.of,
      "aria-posinset": item.at,
      "aria-selected": node === chosen ? "true" : "false",
      "aria-expanded": canOpen(item) ? String(isOpen(node)) : null,
      title: group ? node.tally : item.alone && node.above ? `${pathOf(node)} › ${node.label}` : null,
      onclick: (event) => {
        active = n;
        clicked(item, event);
      },
    },
    el(
      "div",
      { class: "name", role: "rowheader" },
      stems(item),
      el("b", {}, node.label || "–"),
      item.alone && node.above ? el("i", { class: "path" }, `in ${pathOf(node)}`) : null,
      node.note ? el("i", { class: node.kind === "nursery" ? "count" : node.named ? "named" : null }, node.note) : null,
    ),
    el(
      "div",
      { class: "wide chain", role: "gridcell", "aria-label": node.own.length ? several(node.own.length, "run") : null },
      group ? null : chain(node),
    ),
    el(
      "div",
      { class: `state ${group && node.troubled ? "failed" : node.state}`, role: "gridcell" },
      group
        ? node.troubled
          ? `${count(node.below.filter((child) => child.failed).length)} failed`
          : node.state
        : node.state,
      node.turns ? ` ${node.turns}` : null,
    ),
    numbers(node.sum),
    el("div", { role: "gridcell" }, time(ROW, group ? area(node.all, ROW) : bars(node.own, ROW / 2))),
  );
  line.style.top = `${n * ROW}px`;
  return line;
}
