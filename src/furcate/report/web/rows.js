// What a recording holds, in rows that stand under each other.

const ROW = 26,
  FOLD = 60,
  SHOWN = 12,
  DEEP = 6,
  DOTS = 9,
  PAGE = 100;
const data = JSON.parse(document.getElementById("recording").textContent);
const runs = data.runs,
  rows = data.rows;

// Text only ever becomes text: nothing here parses markup.
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {}))
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) node.setAttribute(name, value);
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}
const count = (n) => n.toLocaleString("en-US");
const several = (n, one) => `${count(n)} ${one}${n === 1 ? "" : "s"}`;
const secs = (s) => (s === undefined || s === null ? "–" : s >= 100 ? `${s.toFixed(0)} s` : `${s.toFixed(2)} s`);

const KINDS = ["input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens"];

function total(list) {
  const sum = { bounded: {} };
  for (const kind of KINDS) {
    let known = null,
      unsure = false;
    for (const run of list) {
      const value = run.usage && run.usage[kind];
      if (value === undefined) unsure = true;
      else known = (known || 0) + value;
      if (run.usage && run.usage.bounds && run.usage.bounds.includes(kind)) unsure = true;
    }
    sum[kind] = known;
    sum.bounded[kind] = unsure;
  }
  let read = 0,
    all = 0;
  for (const { usage } of list)
    if (usage && usage.input_tokens !== undefined && usage.cache_read_tokens !== undefined) {
      read += usage.cache_read_tokens;
      all += usage.input_tokens + usage.cache_read_tokens + (usage.cache_write_tokens || 0);
    }
  sum.share = all ? read / all : null;
  sum.sent =
    sum.input_tokens === null ? null : sum.input_tokens + (sum.cache_read_tokens || 0) + (sum.cache_write_tokens || 0);
  return sum;
}

const stateOf = (run) => run.status || "unfinished";

function makeNodes() {
  const made = rows.map((row) => ({ row, kind: row.kind, own: row.runs.map((n) => runs[n]), below: [], level: 1 }));
  const roots = [];
  rows.forEach((row, n) => (row.up === undefined ? roots : made[row.up].below).push(made[n]));
  const begin = (node) => node.row.at ?? node.own[0]?.at ?? 0;
  const order = [],
    stack = [...roots].sort((a, b) => begin(b) - begin(a));
  while (stack.length) {
    const node = stack.pop();
    order.push(node);
    node.below.sort((a, b) => begin(a) - begin(b));
    for (let n = node.below.length - 1; n >= 0; n--) {
      node.below[n].above = node;
      stack.push(node.below[n]);
    }
  }
  for (let n = order.length - 1; n >= 0; n--) {
    const node = order[n];
    node.all = node.own;
    // Only what is folded into one row needs the runs of all that stands below it.
    if (node.kind === "nursery") node.all = node.below.flatMap((child) => child.all);
  }
  for (const node of order) describe(node);
  return roots.sort((a, b) => begin(a) - begin(b));
}

function describe(node) {
  const { row, own } = node,
    last = own[own.length - 1];
  if (node.kind === "nursery") {
    // The row above has the nursery's name already where it has no other.
    const many = several(node.below.length, "branch").replace("branchs", "branches"),
      named = row.name && node.above?.named !== row.name;
    node.label = named ? row.name : many;
    node.note = named ? many : "";
    node.state = row.state || "unfinished";
    const tally = {};
    for (const child of node.below) {
      const state = child.row.state || "unfinished";
      tally[state] = (tally[state] || 0) + 1;
    }
    node.tally = Object.entries(tally)
      .map(([state, n]) => `${count(n)} ${state}`)
      .join(", ");
    node.troubled = Boolean(tally.failed);
  } else if (node.kind === "branch") {
    node.label = row.name || `branch ${(row.id || "").slice(-8)}`;
    node.state = row.state || "unfinished";
  } else {
    node.label = own[0].prompt || "messages";
    // What its branches are called together, such as the input that it opens, tells it from others of its prompt.
    node.named = [...new Set(node.below.map((child) => child.kind === "nursery" && child.row.name))]
      .filter(Boolean)
      .join(", ");
    node.note = node.named || own[0].model || own[0].id.slice(-8);
    node.state = stateOf(last);
  }
  node.failed = node.state === "failed";
  node.took = own.reduce((most, run) => Math.max(most, (run.end ?? data.took) - (run.at ?? 0)), 0);
  node.turns =
    node.kind === "branch" && row.additional_turns !== undefined ? `${own.length}/${row.additional_turns}` : "";
}

// The names of the rows that a row stands under, from the top; what only repeats the one before is left out.
function pathOf(node) {
  const names = [];
  for (let at = node.above; at; at = at.above)
    if (at.kind !== "more" && !(at.kind === "nursery" && at.label !== at.row.name))
      names.unshift(at.named ? `${at.label} ${at.named}` : at.label);
  return names.join(" › ");
}

function childrenOf(node) {
  if (node.children) return node.children;
  const each =
    node.own.length > 1
      ? node.own.map((run, n) => ({
          kind: "run",
          own: [run],
          all: [run],
          below: [],
          above: node,
          row: {},
          children: [],
          label: node.kind === "branch" ? `turn ${n + 1}` : run.prompt || `run ${n + 1}`,
          note: run.id.slice(-8),
          state: stateOf(run),
          failed: run.status === "failed",
          turns: "",
        }))
      : [];
  node.children = [...each, ...folded(node)];
  return node.children;
}

// Of thousands, those that somebody looks for come first: what failed, and what took longest.
function folded(node) {
  if (node.below.length <= FOLD) return node.below;
  const failed = node.below.filter((child) => child.failed);
  const slow = node.below.filter((child) => !child.failed).sort((a, b) => b.took - a.took);
  const first = new Set([...failed.slice(0, SHOWN), ...slow.slice(0, SHOWN)]);
  const rest = node.below.filter((child) => !first.has(child));
  const more = {
    kind: "more",
    own: [],
    row: {},
    below: rest,
    children: rest,
    above: node,
    state: "",
    turns: "",
    failed: false,
    all: rest.flatMap((child) => child.all),
    label: `${count(rest.length)} more`,
    note: failed.length > SHOWN ? `${count(failed.length - SHOWN)} of them failed` : "",
  };
  return [...[...first].sort((a, b) => b.failed - a.failed || b.took - a.took), more];
}

const roots = makeNodes();
const everything = runs,
  underWay = busiest(runs, "begun", "end"),
  waiting = busiest(runs, "queued", "begun");
const isOpen = (node) =>
  node.open ?? (node.kind === "nursery" || (node.kind === "line" && node.below.length > 0 && roots.length <= FOLD));

let visible = [];
function flatten() {
  visible = [];
  if (words) {
    const wanted = words.toLowerCase();
    const stack = [...roots].reverse();
    while (stack.length) {
      const node = stack.pop();
      if (node.kind !== "nursery" && matches(node, wanted)) visible.push({ node, depth: 0, ends: [], alone: true });
      for (let n = node.below.length - 1; n >= 0; n--) stack.push(node.below[n]);
    }
    return;
  }
  const stack = roots.map((node, n) => ({ node, depth: 0, ends: [], at: n + 1, of: roots.length })).reverse();
  while (stack.length) {
    const item = stack.pop();
    visible.push(item);
    if (!isOpen(item.node)) continue;
    const children = childrenOf(item.node);
    for (let n = children.length - 1; n >= 0; n--)
      stack.push({
        node: children[n],
        depth: item.depth + 1,
        ends: [...item.ends, n === children.length - 1],
        at: n + 1,
        of: children.length,
      });
  }
}
const matches = (node, wanted) =>
  [
    node.label,
    node.state,
    node.row.id,
    node.named,
    ...node.own.flatMap((run) => [run.id, run.prompt, run.model, run.backend, run.reason, run.kind]),
  ].some((text) => text && text.toLowerCase().includes(wanted));
