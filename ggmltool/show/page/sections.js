/* What stands below the pictures: the tables, what has memory now, the scenario. */

const gap = (text) => (text === "" ? null : text);

/** All tables, made anew for the side that is looked at. */
function makeTables(model) {
  tables.length = 0;
  const { data } = model;
  const timed = model.splits.some((split) => split.computes);
  const put = (id, table) => fill(byId(id), table ? table.element : el("p", { class: "quiet", text: "None." }));
  const chosen = (t) => t === store.tensor;
  const tensor = (title, of) => ({
    title,
    value: (row) => model.tensors[of(row)]?.shown ?? "",
    cell: (row) => (of(row) >= 0 ? tensorButton(model, of(row)) : null),
    wide: true,
  });
  const on = (title, of) => ({
    title,
    value: (row) => model.backends[of(row)]?.name ?? "",
    cell: (row) => (of(row) >= 0 ? backendChip(model, of(row)) : null),
  });
  const number = (title, value, cell) => ({ title, number: true, value, cell });
  const size = (title, value) => number(title, value, (row) => (value(row) === null ? null : bytes(value(row))));
  const said = (title, value) => ({ title, value, cell: (row) => gap(clean(value(row))), wide: true });

  put(
    "splits-table",
    model.splits.length === 0
      ? null
      : new Table({
          about: "Splits",
          rows: model.splits,
          chosen: (split) => store.tensor >= 0 && model.tensors[store.tensor].split === split.i,
          columns: [
            number("split", (split) => split.i),
            on("backend", (split) => split.backend),
            number("nodes", (split) => split.i_end - split.i_start),
            tensor("first node", (split) => split.tensor),
            number("copies", (split) => split.inputs.length),
            size("bytes copied", (split) => split.nbytes),
            ...(timed
              ? [
                  number(
                    "computes",
                    (split) => split.computes?.mid ?? null,
                    (split) => seconds(split.computes?.mid),
                  ),
                  number(
                    "copying",
                    (split) => split.copies?.mid ?? null,
                    (split) => seconds(split.copies?.mid),
                  ),
                ]
              : []),
            {
              title: "begins because",
              wide: true,
              value: (split) =>
                model.plain(model.text(split.text, { tensor: split.tensor, node: split.tensor, other: split.other })),
              cell: (split) =>
                rich(model, model.text(split.text, { tensor: split.tensor, node: split.tensor, other: split.other })),
            },
          ],
        }),
  );
  const copies = model.splits.flatMap((split) =>
    split.inputs.map((input) => ({ ...input, split: split.i, to: split.backend })),
  );
  put(
    "copies-table",
    copies.length
      ? new Table({
          about: "Copies",
          rows: copies,
          chosen: (row) => chosen(row.tensor),
          columns: [
            tensor("tensor", (row) => row.tensor),
            { title: "what", value: (row) => row.what },
            size("bytes", (row) => row.nbytes),
            on("from", (row) => row.backend),
            on("to", (row) => row.to),
            number("before split", (row) => row.split),
            tensor("for", (row) => row.node),
          ],
        })
      : null,
  );
  put(
    "tensors-table",
    new Table({
      about: "Tensors",
      rows: model.tensors.filter((t) => t.kind < 3),
      chosen: (t) => chosen(t.i),
      columns: [
        number("node", (t) => (t.number >= 0 ? t.number : null)),
        tensor("tensor", (t) => t.i),
        { title: "op", value: (t) => t.op },
        { title: "shape", value: (t) => t.shape },
        size("bytes", (t) => t.nbytes),
        on("backend", (t) => t.backend),
        { title: "rule", value: (t) => t.cause },
        number("split", (t) => (t.split >= 0 ? t.split : null)),
        number("offset", (t) => (t.offset >= 0 && t.blocks.length ? t.offset : null)),
        number("uses", (t) => (t.kind === 2 ? null : t.uses)),
      ],
    }),
  );
  put(
    "limits-table",
    data.gauges.length
      ? new Table({
          about: "Limits",
          rows: data.gauges,
          hasFilter: false,
          chosen: () => false,
          columns: [
            { title: "limit", value: (row) => `${row.group}: ${row.title}` },
            number(
              "used",
              (row) => row.used,
              (row) => gaugeValue(row, row.used),
            ),
            number(
              "of",
              (row) => row.limit,
              (row) => gaugeValue(row, row.limit),
            ),
            number("share", (row) => (row.used === null ? null : row.used / row.limit), gaugeBar),
            {
              title: "status",
              value: (row) => row.status,
              cell: (row) => el("span", { class: `status ${row.status.replace(" ", "-")}`, text: row.status }),
            },
            said("where", (row) => row.where),
            said("beyond it", (row) => row.beyond),
          ],
        })
      : null,
  );
  put("matrix-table", data.matrix.length ? matrixTable(model) : null);
}

function gaugeBar(row) {
  if (row.used === null || row.limit === 0) return null;
  const share = row.used / row.limit;
  const bar = el("span", { class: `bar ${row.status.replace(" ", "-")}`, "aria-hidden": "true" });
  bar.style.setProperty("--share", `${clamp(share * 100, 0.5, 100)}%`);
  return [bar, el("span", { text: share > 0 && share < 0.01 ? "< 1 %" : `${Math.round(share * 100)} %` })];
}

function matrixTable(model) {
  const says = (row, b) => {
    const parts = [
      ["yes", row.yes[b]],
      ["after copies", row.copy[b]],
      ["by offload", row.offload[b]],
      ["no", row.no[b]],
    ].filter(([, n]) => n > 0);
    return parts.map(([word, n]) => (n === row.nodes ? word : `${word} ${n}`)).join(", ") || "–";
  };
  const columns = [
    { title: "op", value: (row) => row.op },
    { title: "nodes", number: true, value: (row) => row.nodes },
  ];
  model.backends.forEach((backend, b) =>
    columns.push(
      {
        title: `${clean(backend.name)} supports it`,
        value: (row) => says(row, b),
        cell: (row) =>
          el("span", {
            class: row.no[b] === row.nodes ? "status no" : null,
            title: clean(row.why[b]) || null,
            text: says(row, b),
          }),
      },
      {
        title: `${clean(backend.name)} runs`,
        number: true,
        value: (row) => row.runs[b],
        cell: (row) => (row.runs[b] ? integer(row.runs[b]) : "–"),
      },
    ),
  );
  return new Table({
    about: "Ops and backends",
    rows: model.data.matrix,
    columns,
    chosen: () => false,
    hasFilter: false,
  });
}

function showScenario(model) {
  const { source, asked, log } = model.data;
  fill(byId("asked"), el("code", { text: clean(asked.startsWith("ggmltool") ? asked : `ggmltool ${asked}`) }));
  byId("scenario-text").textContent = source.text.replace(/[^\n\t]/g, (c) =>
    HIDDEN.test(c) ? ((HIDDEN.lastIndex = 0), clean(c)) : c,
  );
  byId("scenario-cut").textContent = source.whole
    ? ""
    : `This is the beginning; all of it is ${bytes(source.nbytes)}.`;
  byId("save").onclick = () => save(source);
  byId("log").hidden = log.length === 0;
  byId("log-text").textContent = log.map(clean).join("\n");
  fill(
    byId("no-seconds"),
    model.data.seconds || !model.data.no_seconds ? "" : withCode(`No seconds: ${model.data.no_seconds}`),
  );
}

/** Gives the reader the scenario as a file. */
function save({ text, format }) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  el("a", { href: url, download: `scenario.${format === "json" ? "json" : "yaml"}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** What has memory after the event, as a table: the map in words. */
const liveTable = {
  start() {
    this.redraw = perFrame("live", () => this.draw());
    this.box = byId("live");
    this.box.addEventListener("toggle", () => this.redraw());
    store.listen(() => this.redraw());
  },

  draw() {
    const { model, event } = store;
    const lanes = model.lanes.map((lane) => ({ lane, live: model.live(lane, event), free: model.free(lane, event) }));
    byId("live-said").textContent = lanes.map(({ lane, live }) => inUse(lane, live)).join(" · ");
    if (!this.box.open && !theme.printing) return;
    const rows = lanes.flatMap(({ lane, live, free }) =>
      [
        ...live.map((block) => ({ lane, offset: block.offset, size: block.size, tensor: block.tensor })),
        ...free.map(([offset, size]) => ({ lane, offset, size, tensor: -1 })),
      ].sort((a, b) => a.offset - b.offset),
    );
    const old = tables.indexOf(this.table);
    if (old >= 0) tables.splice(old, 1);
    this.table = new Table({
      about: "What has memory now",
      rows,
      chosen: (row) => row.tensor >= 0 && row.tensor === store.tensor,
      hasFilter: false,
      columns: [
        { title: "offset", number: true, value: (row) => row.offset },
        { title: "bytes", number: true, value: (row) => row.size, cell: (row) => bytes(row.size) },
        {
          title: "tensor",
          wide: true,
          value: (row) => (row.tensor < 0 ? "free" : model.tensors[row.tensor].shown),
          cell: (row) =>
            row.tensor < 0 ? el("span", { class: "quiet", text: "free" }) : tensorButton(model, row.tensor),
        },
        { title: "buffer", value: (row) => row.lane.buffer.buft },
        { title: "chunk", number: true, value: (row) => row.lane.chunk },
      ],
    });
    fill(byId("live-table"), this.table.element);
  },
};

function inUse({ buffer, chunk, of }, live) {
  const used = live.reduce((n, block) => n + block.size, 0);
  return `${clean(buffer.buft)}${of > 1 ? ` ${chunk}` : ""}: ${count(live.length, "tensor")}, ${bytes(used)} in use`;
}
