/* The answer at the top: a sentence, figures, what is odd, what could be changed. */

/** The answer at the top: what runs where, what is copied, what memory it takes, what is odd. */
function summarize(model) {
  const { data } = model;
  fill(byId("answer"), answerOf(model));
  fill(byId("figures"), figuresOf(model));
  const odd = oddities(model);
  byId("odd").hidden = odd.length === 0;
  fill(
    byId("odd-list"),
    odd.map((item) => el("li", {}, item)),
  );
  const advice = data.advice.filter((row) => ["option", "weights", "node"].includes(row.kind));
  byId("change").hidden = advice.length === 0;
  fill(
    byId("change-list"),
    advice.slice(0, 40).map((row) => el("li", {}, adviceText(row))),
  );
  byId("failed").hidden = data.ok;
  if (!data.ok) {
    const error = data.error || {};
    fill(
      byId("failed-said"),
      el("strong", { text: "ggml refuses this graph." }),
      el("pre", { text: clean(error.message || error.condition || "") }),
      el("p", { text: clean(error.explanation || "") }),
    );
  }
}

function answerOf(model) {
  const { data } = model;
  const runs = model.backends.map((_, b) => model.program.filter((t) => model.tensors[t].backend === b).length);
  const used = model.backends.map((_, b) => b).filter((b) => runs[b] > 0);
  const list = (items) => items.flatMap((item, i) => [i === 0 ? "" : i === items.length - 1 ? " and " : ", ", item]);
  const copies = data.splits.reduce((n, split) => n + split.inputs.length, 0);
  const nbytes = data.splits.reduce((n, split) => n + split.nbytes, 0);
  const compute = data.buffers.filter((buffer) => buffer.usage === "compute" && buffer.size > 0);
  return [
    el("strong", { text: count(model.nodes, "node") }),
    " in ",
    el("strong", { text: count(data.splits.length, "split") }),
    used.length ? " on " : "",
    list(used.map((b) => [backendChip(model, b), used.length > 1 ? ` (${integer(runs[b])})` : ""])),
    "; ",
    copies
      ? [
          el("strong", { text: bytes(nbytes) }),
          ` ${copies === 1 ? "is" : "are"} copied between backends, in ${count(copies, "tensor")}`,
        ]
      : "nothing is copied",
    "; ",
    compute.length
      ? [
          list(compute.map((buffer) => [el("strong", { text: bytes(buffer.size) }), ` of ${clean(buffer.buft)}`])),
          " for results",
        ]
      : "no memory for results",
    ".",
  ];
}

function figuresOf(model) {
  const { data } = model;
  const figure = (title, value, about) =>
    el(
      "div",
      { class: "figure" },
      el("dt", { text: title }),
      el("dd", {}, value, about ? el("span", { class: "quiet", text: about }) : ""),
    );
  const nbytes = data.splits.reduce((n, split) => n + split.nbytes, 0);
  const rows = [
    figure("nodes", integer(model.nodes), `${count(data.leafs, "leaf", "leafs")}`),
    figure(
      "splits",
      integer(data.splits.length),
      data.splits.length ? `${count(Math.round(model.nodes / data.splits.length), "node")} each` : "",
    ),
    figure(
      "copied",
      bytes(nbytes),
      count(
        data.splits.reduce((n, split) => n + split.inputs.length, 0),
        "tensor",
      ),
    ),
  ];
  for (const backend of model.backends) {
    const about = [`${bytes(backend.contexts)} of tensors`, backend.memory ? `of ${bytes(backend.memory)}` : ""]
      .filter(Boolean)
      .join(", ");
    rows.push(figure(`${clean(backend.name)} compute`, bytes(backend.compute), about));
  }
  if (data.seconds)
    rows.push(
      figure(
        "time, estimated",
        seconds(data.seconds.all.mid),
        `${seconds(data.seconds.all.low)} to ${seconds(data.seconds.all.high)}`,
      ),
    );
  return rows;
}

/** What a reader would not expect, each a line. */
function oddities(model) {
  const { data } = model;
  const odd = [];
  const inputs = model.splits.flatMap((split) => split.inputs);
  const of = (what) => inputs.filter((input) => input.what === what);
  const weights = of("weight");
  if (weights.length) {
    const nbytes = weights.reduce((n, input) => n + input.nbytes, 0);
    odd.push([
      `${count(weights.length, "copied tensor is a weight", "copied tensors are weights")}, ${bytes(nbytes)} for each `,
      "batch: they are in other memory than the nodes that read them.",
    ]);
  }
  const times = new Map();
  inputs.forEach((input) => times.set(input.tensor, (times.get(input.tensor) || 0) + 1));
  const [most, often] = [...times].reduce((a, b) => (b[1] > a[1] ? b : a), [-1, 1]);
  if (often > 1) odd.push([tensorButton(model, most), ` is copied ${often} times.`]);
  const short = model.splits.filter((split) => split.i_end - split.i_start <= 2).length;
  if (short > 4 && short * 2 > model.splits.length)
    odd.push([`${integer(short)} of ${integer(model.splits.length)} splits have one or two nodes.`]);
  for (const row of data.advice) if (["freed", "op", "limit"].includes(row.kind)) odd.push(sentence(row.text));
  for (const cut of data.left_out)
    odd.push([`Of ${integer(cut.of)} ${clean(cut.what)}, ${integer(cut.here)} are in this page.`]);
  return odd.slice(0, 14);
}

function sentence(text) {
  return withCode(/[.!?]$/.test(text) ? text : text + ".");
}

function gaugeValue(gauge, value) {
  return value === null ? "–" : gauge.nbytes ? bytes(value) : integer(value);
}
