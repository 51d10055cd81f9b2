// The figure: which rows are seen, and what keys and pointers do to it.

const figure = document.getElementById("figure");
let active = 0,
  chosen = null;
const head = el("div", { class: "row head", role: "row", "aria-rowindex": 1 });
const sumRow = el("div", { class: "row all", role: "row", "aria-rowindex": 2 });
const space = el("div", { class: "space", role: "rowgroup" });
const scroller = el("div", { class: "rows", role: "presentation", tabindex: -1 }, space);
const grid = el(
  "div",
  { class: "grid", role: "treegrid", tabindex: 0, "aria-label": "Runs and branches", "aria-describedby": "keys" },
  head,
  sumRow,
  scroller,
);
const card = el("aside", { class: "card", hidden: "", tabindex: -1, "aria-label": "Details" });
const found = el("span", { role: "status" });
const search = el("input", {
  type: "search",
  placeholder: "name, state, id, reason",
  "aria-label": "Show only rows with",
  oninput: () => {
    words = search.value.trim();
    active = 0;
    scroller.scrollTop = 0;
    redraw();
  },
});
const closer = el("button", { type: "button", disabled: "", onclick: zoom }, "Zoom to row");
const whole = el(
  "button",
  {
    type: "button",
    disabled: "",
    onclick: () => {
      from = 0;
      to = Math.max(data.took, 0.001);
      redraw();
    },
  },
  "Whole time",
);
const split = el("div", { class: "split" }, grid, card);

function legend() {
  const sample = (kind, tall) =>
    svg("svg", { "aria-hidden": "true" }, svg("rect", { class: kind, x: 0, y: 7 - tall / 2, width: 22, height: tall }));
  const mark = (state) => svg("svg", { "aria-hidden": "true" }, glyph(state, 11, 7, 3.2));
  return el(
    "div",
    { class: "legend" },
    el("span", {}, sample("wait", 3), "waiting for a place"),
    el("span", {}, sample("send", 7), "to the first event"),
    el("span", {}, sample("flow", 13), "streaming"),
    el("span", {}, mark("succeeded"), "exchange"),
    el("span", {}, mark("failed"), "failed"),
    el("span", {}, mark("cancelled"), "cancelled or unfinished"),
  );
}

function heads() {
  const cells = [
    ["Exchange or branch", ""],
    ["Turns", "wide chain"],
    ["State", ""],
    ["Input", "n wide"],
    ["Cached", "n wide"],
    ["Output", "n wide"],
  ];
  head.replaceChildren(
    ...cells.map(([text, style]) => el("div", { class: style, role: "columnheader" }, text)),
    el(
      "div",
      { role: "columnheader", "aria-label": "Time" },
      svg(
        "svg",
        { class: "time", height: 27 },
        marks().map(({ left, text }) => svg("text", { x: left.toFixed(1), y: 18 }, text)),
      ),
    ),
  );
  const drawn = area(everything, 56);
  everything.sum ||= total(everything);
  sumRow.replaceChildren(
    el("div", { class: "name", role: "rowheader" }, el("b", {}, "All runs"), el("i", { class: "count" }, count(everything.length))),
    el("div", { class: "wide chain", role: "gridcell" }),
    el(
      "div",
      { class: "most", role: "gridcell" },
      el("div", {}, waiting ? `≤ ${count(waiting)} waiting` : ""),
      el("div", {}, underWay ? `≤ ${count(underWay)} under way` : ""),
    ),
    ...numbers(everything.sum),
    el("div", { role: "gridcell" }, time(56, drawn)),
  );
}

function draw() {
  const top = scroller.scrollTop,
    high = scroller.clientHeight || 600;
  const first = Math.max(0, Math.floor(top / ROW) - 8),
    last = Math.min(visible.length, Math.ceil((top + high) / ROW) + 8);
  space.replaceChildren(...visible.slice(first, last).map((item, n) => drawRow(item, first + n)));
  if (visible.length) grid.setAttribute("aria-activedescendant", `row-${active}`);
  closer.disabled = !visible.length;
  whole.disabled = from === 0 && to >= data.took;
}

function redraw() {
  flatten();
  active = Math.min(active, Math.max(0, visible.length - 1));
  space.style.height = `${visible.length * ROW}px`;
  grid.setAttribute("aria-rowcount", visible.length + 2);
  found.textContent = words ? several(visible.length, "row") : "";
  const cell = head.lastElementChild;
  if (cell) width = Math.max(60, cell.clientWidth);
  heads();
  draw();
}

function reveal(n) {
  active = Math.max(0, Math.min(n, visible.length - 1));
  const top = active * ROW;
  if (top < scroller.scrollTop) scroller.scrollTop = top;
  else if (top + ROW > scroller.scrollTop + scroller.clientHeight)
    scroller.scrollTop = top + ROW - scroller.clientHeight;
  draw();
}

function toggle(item, open) {
  item.node.open = open ?? !isOpen(item.node);
  redraw();
}

function clicked(item, event) {
  const onFold = event.target.closest && event.target.closest(".name svg");
  if (canOpen(item) && (onFold || item.node.kind === "more")) toggle(item);
  else choose(item.node);
}

function zoom() {
  const item = visible[active];
  if (!item || !item.node.all.length) return;
  const spans = item.node.all.map((run) => [run.at ?? 0, run.end ?? data.took]);
  const a = spans.reduce((least, span) => Math.min(least, span[0]), Infinity),
    b = spans.reduce((most, span) => Math.max(most, span[1]), 0);
  const room = Math.max((b - a) * 0.04, 0.001);
  from = Math.max(0, a - room);
  to = Math.max(b + room, from + 0.002);
  redraw();
}

grid.addEventListener("keydown", (event) => {
  const item = visible[active],
    page = Math.max(1, Math.floor(scroller.clientHeight / ROW) - 1);
  if (!item || event.ctrlKey || event.metaKey || event.altKey) return;
  const moves = {
    ArrowDown: active + 1,
    ArrowUp: active - 1,
    PageDown: active + page,
    PageUp: active - page,
    Home: 0,
    End: visible.length - 1,
  };
  if (event.key in moves) reveal(moves[event.key]);
  else if (event.key === "ArrowRight" && canOpen(item)) isOpen(item.node) ? reveal(active + 1) : toggle(item, true);
  else if (event.key === "ArrowLeft") {
    if (canOpen(item) && isOpen(item.node)) toggle(item, false);
    else if (item.node.above)
      reveal(
        Math.max(
          0,
          visible.findIndex((other) => other.node === item.node.above),
        ),
      );
  } else if (event.key === "Enter" || event.key === " ")
    item.node.kind === "more" ? toggle(item) : choose(item.node, true);
  else if (event.key === "z") zoom();
  else if (event.key === "w") whole.click();
  else if (event.key === "Escape") close();
  else return;
  event.preventDefault();
});
scroller.addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
