// Ways from the tables to a run, the list of receipts, and what happens when the page has been read.

const places = new Map();
for (let stack = [...roots]; stack.length;) {
  const node = stack.pop();
  for (const run of node.own) places.set(run.id, node);
  stack.push(...node.below);
}
function go(id) {
  const node = places.get(id);
  if (!node) return;
  words = search.value = "";
  // A row that is folded away among many stands in the rest, which has to be opened.
  for (let above = node.above, child = node; above; child = above, above = above.above) {
    above.open = true;
    const more = childrenOf(above).find((one) => one.kind === "more");
    if (more && more.below.includes(child)) more.open = true;
  }
  choose(node);
  reveal(visible.findIndex((item) => item.node === node));
  figure.scrollIntoView({ block: "nearest" });
  grid.focus({ preventScroll: true });
}
for (const button of document.querySelectorAll("button[data-run]")) {
  button.disabled = !places.has(button.dataset.run);
  button.addEventListener("click", () => go(button.dataset.run));
}

function receipts() {
  const listed = runs.flatMap((run) =>
    (run.attempts || []).filter((attempt) => attempt.receipt).map((attempt) => ({ run, attempt })),
  );
  const place = document.getElementById("receipt-list");
  if (!listed.length) return place.append(el("p", { class: "hint" }, "No receipts are recorded."));
  const body = el("tbody"),
    short = (digest) => el("span", { class: "id", title: digest }, `${digest.slice(0, 12)}…`);
  const make = ({ run, attempt }) =>
    el(
      "tr",
      {},
      el(
        "td",
        {},
        el("button", { type: "button", class: "id", onclick: () => go(run.id) }, attempt.request_id || run.id),
      ),
      el("td", {}, attempt.receipt.provider),
      el("td", {}, attempt.model || run.model || ""),
      el("td", {}, attempt.receipt.outcome),
      el("td", { class: "n" }, count(attempt.receipt.dropped)),
      el("td", {}, short(attempt.receipt.native)),
      el("td", {}, short(attempt.receipt.sent)),
    );
  let shown = 0;
  const more = el("button", { type: "button", onclick: () => grow() });
  const grow = () => {
    body.append(...listed.slice(shown, (shown += PAGE)).map(make));
    more.hidden = shown >= listed.length;
    more.textContent = `${count(Math.max(0, listed.length - shown))} more`;
  };
  shown = Math.min(20, listed.length);
  body.append(...listed.slice(0, shown).map(make));
  more.hidden = shown >= listed.length;
  more.textContent = `${count(listed.length - shown)} more`;
  place.append(
    el(
      "table",
      {},
      el("caption", {}, "One for each attempt"),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          ["request", "provider", "model", "outcome"].map((text) => el("th", { scope: "col" }, text)),
          el("th", { scope: "col", class: "n" }, "foreign dropped"),
          el("th", { scope: "col" }, "native digest"),
          el("th", { scope: "col" }, "provider digest"),
        ),
      ),
      body,
    ),
    more,
  );
}

figure.append(
  el("div", { class: "tools" }, search, closer, whole, found, el("span", { class: "gap" }), legend()),
  split,
  el(
    "p",
    { class: "hint", id: "keys" },
    "Arrow keys move and fold, Enter shows details, z zooms to the row, w shows the whole time.",
  ),
);
heads();
redraw();
// The first drawing had to guess how wide the column of times is.
redraw();
receipts();
new ResizeObserver(() => {
  if (Math.abs(head.lastElementChild.clientWidth - width) > 1) redraw();
}).observe(head);
document.documentElement.dataset.ready = "yes";
