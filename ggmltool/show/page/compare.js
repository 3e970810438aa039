/* Two reports: what differs between them, and which of them the rest of the page is about. */

const comparison = {
  /** Fills the section of differences; nothing where there is one report only. */
  start(data) {
    this.data = data;
    for (const id of ["differences", "differences-link"]) {
      const part = byId(id);
      part.hidden = false;
      part.parentElement.prepend(part);
    }
    this.pairs = [new Map(data.pairs), new Map(data.pairs.map(([a, b]) => [b, a]))];
    const choice = byId("side-choice");
    choice.hidden = false;
    data.titles.forEach((title, side) => {
      const button = el(
        "button",
        { type: "button", "aria-pressed": String(side === store.side), onclick: () => store.set({ side }) },
        "AB"[side],
        el("bdi", { class: "side-title", text: clean(title) }),
      );
      choice.append(button);
    });
    store.listen(
      (changed) =>
        changed.has("side") &&
        [...choice.querySelectorAll("button")].forEach((button, side) =>
          button.setAttribute("aria-pressed", String(side === store.side)),
        ),
    );
    fill(byId("differences-body"), this.verdict(), this.totals(), this.divergences(), this.groups(), this.rules());
  },

  /** The same node in the other report, -1 if it has none. */
  across(side, tensor) {
    return this.pairs[side].get(tensor) ?? -1;
  },

  verdict() {
    const { same, parts, divergences } = this.data;
    if (same) return el("p", { class: "answer", text: "The two plans are the same." });
    const first = divergences[0];
    const where = first
      ? [
          " They part first at ",
          this.node(0, first.a, first),
          first.b >= 0 && first.a < 0 ? this.node(1, first.b, first) : "",
          ".",
        ]
      : "";
    return el(
      "p",
      { class: "answer" },
      `The two plans differ in ${parts.join(", ").replace(/, ([^,]*)$/, " and $1")}.`,
      where,
    );
  },

  node(side, t) {
    return t >= 0 ? tensorButton(store.sides[side], t) : null;
  },

  totals() {
    const rows = this.data.totals;
    const show = (row, n) => (row.nbytes ? bytes(n) : integer(n));
    const change = (row) => {
      const by = row.b - row.a;
      if (by === 0) return el("span", { class: "quiet", text: "same" });
      return (by > 0 ? "+" : "−") + show(row, Math.abs(by));
    };
    return this.small(
      "Totals",
      ["", "A", "B", "change"],
      rows.map((row) => [clean(row.what), show(row, row.a), show(row, row.b), change(row)]),
      [1, 2, 3],
    );
  },

  divergences() {
    const rows = this.data.divergences;
    if (rows.length === 0) return null;
    const words = { order: "first other node", backend: "first other backend", split: "first other split" };
    return this.small(
      "Where they part",
      ["", "A", "", "B", ""],
      rows.map((row) => [
        words[row.kind] || clean(row.kind),
        this.node(0, row.a),
        clean(row.says_a),
        this.node(1, row.b),
        clean(row.says_b),
      ]),
    );
  },

  groups() {
    return this.data.groups.map((group) => {
      const rows = group.pairs.map(([a, b]) => ({ a, b }));
      const [A, B] = store.sides;
      const column = (title, model, of) => ({
        title,
        wide: true,
        value: (row) => (of(row) >= 0 ? model.tensors[of(row)].shown : ""),
        cell: (row) => (of(row) >= 0 ? tensorButton(model, of(row)) : "–"),
      });
      const about = (title, model, of) => ({ title, value: (row) => this.about(model, of(row)) });
      const table = new Table({
        about: `${clean(group.title)}: ${count(rows.length, "node")}`,
        rows,
        chosen: () => false,
        columns: [
          column("A", A, (row) => row.a),
          about("in A", A, (row) => row.a),
          column("B", B, (row) => row.b),
          about("in B", B, (row) => row.b),
        ],
      });
      return el(
        "details",
        { class: "group", open: this.data.groups.length === 1 },
        el("summary", { text: `${clean(group.title)}: ${count(rows.length, "node")}` }),
        table.element,
      );
    });
  },

  about(model, t) {
    const of = model.tensors[t];
    if (!of) return "";
    const on = model.backends[of.backend];
    return `${on ? on.name : "none"}${of.cause ? ` (${of.cause})` : ""} · ${of.shape}`;
  },

  rules() {
    const { rules } = this.data;
    if (rules.length === 0) return null;
    return [
      el("h3", { text: "Rules that changed" }),
      el(
        "ul",
        {},
        rules.map((row) =>
          el(
            "li",
            {},
            row.rule
              ? [
                  `Since ${clean(row.since)}: ${clean(row.now)}`,
                  el("span", { class: "quiet", text: ` Before: ${clean(row.before)}` }),
                ]
              : "",
            row.here.length
              ? el(
                  "ul",
                  {},
                  row.here.map((what) => el("li", { text: clean(what) })),
                )
              : "",
          ),
        ),
      ),
    ];
  },

  small(title, heads, rows, numbers = []) {
    return [
      el("h3", { text: title }),
      el(
        "div",
        { class: "table-scroll", tabindex: "0", role: "region", "aria-label": title },
        el(
          "table",
          {},
          el("caption", { class: "hidden-text", text: title }),
          el(
            "thead",
            {},
            el(
              "tr",
              {},
              heads.map((head, i) =>
                head
                  ? el("th", { scope: "col", class: numbers.includes(i) ? "number" : null, text: head })
                  : el("td", {}),
              ),
            ),
          ),
          el(
            "tbody",
            {},
            rows.map((row) =>
              el(
                "tr",
                {},
                row.map((cell, i) =>
                  i === 0
                    ? el("th", { scope: "row" }, cell)
                    : el("td", { class: numbers.includes(i) ? "number" : "wide" }, cell),
                ),
              ),
            ),
          ),
        ),
      ),
    ];
  },
};
