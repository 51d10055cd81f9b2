// What is told of a row beside the figure: its runs, attempts, receipts, and what was said.

function close() {
  chosen = null;
  card.hidden = true;
  split.classList.remove("open");
  redraw();
  grid.focus({ preventScroll: true });
}

function choose(node, focus) {
  chosen = node;
  card.hidden = false;
  split.classList.add("open");
  card.replaceChildren(...details(node));
  card.scrollTop = 0;
  redraw();
  if (focus) card.focus({ preventScroll: true });
}
card.addEventListener("keydown", (event) => {
  if (event.key === "Escape") close();
});

const facts = (...pairs) =>
  el(
    "dl",
    { class: "facts" },
    pairs
      .filter(([, value]) => value !== undefined && value !== null && value !== "")
      .flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]),
  );
const ident = (text) => (text ? el("span", { class: "id" }, text) : null);
const tokens = (usage) =>
  KINDS.filter((kind) => usage && usage[kind] !== undefined)
    .map(
      (kind) =>
        `${kind.replace("_tokens", "").replace("_", " ")} ${(usage.bounds || []).includes(kind) ? "at least " : ""}${count(usage[kind])}`,
    )
    .join(", ") || "unknown";

function details(node) {
  const { row } = node;
  const shown = [
    el(
      "header",
      {},
      el("h3", {}, node.named ? `${node.label}, ${node.named}` : node.label),
      el("button", { type: "button", onclick: close, "aria-label": "Close the details" }, "Close"),
    ),
  ];
  if (node.kind === "nursery")
    return [
      ...shown,
      facts(
        ["branches", node.tally],
        ["state", node.state],
        ["forked from run", jump(row.parent_run_id)],
        ["nursery", ident(row.id)],
        ["tokens", tokens(plain(node.sum))],
      ),
    ];
  if (node.kind === "branch")
    shown.push(
      facts(
        ["in", pathOf(node)],
        ["state", node.state],
        ["error", row.error_type],
        ["turns", row.additional_turns === undefined ? "" : `${node.own.length} of at most ${row.additional_turns}`],
        ["forked from run", jump(row.parent_run_id)],
        ["branch", ident(row.id)],
      ),
    );
  return [...shown, ...paged(node.own, (run, n) => runCard(run, node, n), 40)];
}
const plain = (sum) =>
  Object.fromEntries(KINDS.filter((kind) => sum && sum[kind] !== null).map((kind) => [kind, sum[kind]]));

function paged(list, make, size) {
  const shown = list.slice(0, size).map(make);
  if (list.length <= size) return shown;
  const more = el(
    "button",
    {
      type: "button",
      onclick: () => more.replaceWith(...paged(list.slice(size), (one, n) => make(one, n + size), size)),
    },
    `${count(list.length - size)} more`,
  );
  return [...shown, more];
}

function jump(id) {
  if (!id) return null;
  return places.has(id) ? el("button", { type: "button", class: "id", onclick: () => go(id) }, id) : ident(id);
}

function runCard(run, node, n) {
  const title = node.kind === "branch" ? `Turn ${n + 1}` : "Run";
  return el(
    "section",
    { "aria-label": `${title} ${run.id}` },
    el("h4", {}, `${title}: ${stateOf(run)}`),
    facts(
      ["run", ident(run.id)],
      ["continues run", node.kind === "run" || n === 0 ? jump(run.parent_run_id) : null],
      ["prompt", run.prompt],
      ["model", run.model],
      ["backend", `${run.backend ?? "–"} (${run.dialect ?? "–"}), profile ${run.profile ?? "–"}`],
      ["address", run.base_url],
      ["session", run.session_id],
      [
        "settings",
        run.settings
          ? Object.entries(run.settings)
              .map(([name, value]) => `${name} ${value}`)
              .join(", ")
          : null,
      ],
      ["took", secs(run.duration_s)],
      ["tokens", tokens(run.usage)],
      ["stopped by", run.stop_reason],
      ["checked", run.validation === "not_requested" ? null : run.validation],
      [
        "failure",
        run.status === "failed" ? [run.failure_kind, run.failure_reason].filter(Boolean).join(", ") || "raised" : null,
      ],
    ),
    (run.attempts || []).map((attempt) => attemptCard(run, attempt)),
  );
}

function attemptCard(run, attempt) {
  const streamed = attempt.first_event_s !== undefined ? attempt.duration_s - attempt.first_event_s : null,
    receipt = attempt.receipt;
  const said = (run.content || []).filter((one) => one.number === attempt.number);
  return el(
    "div",
    {},
    el(
      "h5",
      {},
      `Attempt ${attempt.number}, ${attempt.purpose}: ${attempt.status || "unfinished"}${attempt.replayed ? ", replayed" : ""}${attempt.failure_kind ? ` (${[attempt.failure_kind, attempt.failure_reason].filter(Boolean).join(", ")})` : ""}`,
    ),
    facts(
      ["waited", secs(attempt.waited_s)],
      ["to first event", secs(attempt.first_event_s)],
      ["streamed", secs(streamed)],
      [
        "provider's tools",
        [...new Map((attempt.activities || []).map(([id, name, state]) => [id, `${name} ${state}`])).values()].join(
          ", ",
        ),
      ],
    ),
    said.map(exchange),
    el(
      "details",
      {},
      el("summary", {}, receipt ? "Receipt" : "Ids"),
      facts(
        ["request", ident(attempt.request_id)],
        ["response", ident(attempt.response_id)],
        ["answered by", attempt.model],
        ["outcome", receipt && receipt.outcome],
        ["provider", receipt && receipt.provider],
        ["foreign dropped", receipt && count(receipt.dropped)],
        ["native digest", receipt && ident(receipt.native)],
        ["provider digest", receipt && ident(receipt.sent)],
        ["body digest", ident(attempt.body)],
        ["runtime", receipt && ident(receipt.runtime)],
      ),
    ),
  );
}

function exchange(one) {
  const before = one.inherited
    ? [el("p", { class: "hint" }, `after ${several(one.inherited, "message")} of the exchange that it continues`)]
    : [];
  return el(
    "div",
    {},
    before,
    one.messages.map((message) =>
      el(
        "div",
        {},
        el("h5", {}, one.direction === "sent" ? `Sent: ${message.role}` : "Received"),
        (message.parts || []).map(part),
      ),
    ),
  );
}

function part(one) {
  const block = (text, quiet) => el("pre", { class: `said${quiet ? " quiet" : ""}`, dir: "auto", tabindex: 0 }, text);
  switch (one.type) {
    case "text": {
      const sources = (one.attributions || []).map((source) =>
        `${source.title || source.url || ""} ${source.title ? source.url || "" : ""}`.trim(),
      );
      return [block(one.text), sources.length ? block(`Sources:\n${[...new Set(sources)].join("\n")}`, true) : null];
    }
    case "reasoning":
      return block(`Reasoning: ${one.text || "(not shown)"}`, true);
    case "refusal":
      return block(`Refusal: ${one.text}`);
    case "tool_call":
      return block(`Call of ${one.name}\n${one.arguments || ""}`, true);
    case "tool_result":
      return block(`${one.is_error ? "Failure" : "Result"} of ${one.call_id}\n${one.content || ""}`, true);
    case "hosted_activity":
      return block(`${one.name} ${one.state} ${one.summary || ""}`, true);
    default:
      return block(
        `${one.media_type || one.type || "part"} ${one.name || one.url || ""} ${one.size_bytes ? several(one.size_bytes, "byte") : ""}`,
        true,
      );
  }
}
