/* The story of the chosen tensor: why it is where it is, who had its memory and who takes it next. */

const story = {
  start() {
    this.redraw = perFrame("story", () => this.draw());
    store.listen((changed) => {
      if (changed.has("tensor") || changed.has("side")) this.redraw();
    });
    byId("story-close").addEventListener("click", () => store.set({ tensor: -1 }));
  },

  draw() {
    const panel = byId("story-body");
    const { model, tensor } = store;
    document.body.classList.toggle("has-story", tensor >= 0);
    byId("story-close").hidden = tensor < 0;
    if (tensor < 0) {
      byId("story-title").textContent = "No tensor chosen";
      fill(
        panel,
        el(
          "p",
          { class: "quiet" },
          "Choose a tensor in the map, the graph, a table or by search (press ",
          el("kbd", {}, "/"),
          ").",
        ),
      );
      return;
    }
    const t = model.tensors[tensor];
    fill(byId("story-title"), el("bdi", { text: t.shown }));
    fill(
      panel,
      this.head(model, t),
      this.why(model, t),
      this.answers(model, t),
      this.memory(model, t),
      this.sources(model, t),
      this.readers(model, t),
      this.advice(model, t),
      this.events(model, t),
    );
    panel.scrollTop = 0;
  },

  head(model, t) {
    const place =
      t.number >= 0
        ? `node ${t.number} of ${model.nodes}`
        : KINDS_OF_TENSORS[t.kind] === "other"
          ? ""
          : KINDS_OF_TENSORS[t.kind];
    const facts = [
      `${t.op} ${t.shape}`.trim(),
      bytes(t.nbytes),
      place,
      t.split >= 0 ? `split ${t.split}` : "",
      ...flagsOf(t),
    ];
    return [
      el(
        "p",
        { class: "facts" },
        facts.filter(Boolean).map((fact, i) => [i ? " · " : "", clean(fact)]),
      ),
      t.shown === clean(t.id) ? null : el("p", { class: "quiet" }, "in the file: ", name(t.id)),
    ];
  },

  why(model, t) {
    if (t.kind === 2) {
      const of = t.src[0];
      return part(
        "Why it is here",
        el(
          "p",
          {},
          "A copy of ",
          tensorButton(model, of),
          " on ",
          backendChip(model, t.backend),
          ": a node there cannot read it where it is, on ",
          backendChip(model, model.tensors[of].backend),
          ".",
        ),
      );
    }
    if (t.backend < 0) return null;
    const reason = model.text(t.reason, { tensor: t.i, by: t.by, other: t.other });
    const said = t.cause ? [" by rule ", el("code", { text: t.cause })] : [];
    return part(
      "Why this backend",
      el("p", {}, backendChip(model, t.backend), said, reason.length ? ": " : "", rich(model, reason), "."),
      this.asked(model, t),
    );
  },

  /** The rules that were asked before one settled it, in order. */
  asked(model, t) {
    const rows = t.events.filter(
      (e) => model.fields(e).tensor === t.i && ["Assigned", "PassedOver", "Refused"].includes(model.kindOf(e)),
    );
    if (rows.length < 2) return null;
    const items = rows.slice(-12).map((e) => {
      const fields = model.fields(e);
      const kind = model.kindOf(e);
      const mark = kind === "Assigned" ? "yes" : "no";
      const on =
        fields.backend >= 0 && model.backends[fields.backend] ? [" ", backendChip(model, fields.backend)] : "";
      return el(
        "li",
        { class: `answer ${mark}` },
        eventButton(e, model.strings[fields.cause] ?? ""),
        on,
        " ",
        el("span", { class: "mark", text: mark }),
        " ",
        rich(model, model.text(fields.text, fields)),
      );
    });
    return el(
      "details",
      { open: rows.length <= 6 },
      el("summary", {}, count(rows.length, "rule was", "rules were") + " asked"),
      el("ol", { class: "plain" }, items),
    );
  },

  answers(model, t) {
    const rows = model.data.answers[t.answers];
    if (!rows) return null;
    const items = rows.map(([state, why, unreadable], b) => {
      const said = model.strings[state];
      const lines = unreadable.map(([slot, text]) =>
        el(
          "div",
          { class: "quiet" },
          "cannot read ",
          tensorButton(model, t.src[slot]),
          ": ",
          rich(model, model.text(text, { tensor: t.src[slot], by: t.i, other: t.i })),
        ),
      );
      const words =
        {
          yes: "supports it",
          no: "does not support it",
          copy: "supports it, after copying",
          offload: "offloads it, after copying",
        }[said] || said;
      const reason =
        said === "no" || unreadable.length === 0 ? model.text(why, { tensor: t.i, by: t.by, other: t.other }) : [];
      return el(
        "li",
        { class: `answer ${said === "no" ? "no" : "yes"}` },
        backendChip(model, b),
        " ",
        words,
        reason.length ? [": ", rich(model, reason)] : "",
        lines,
      );
    });
    return part("What each backend answers", el("ul", { class: "plain" }, items));
  },

  memory(model, t) {
    const root = t.viewOf >= 0 ? model.tensors[t.viewOf] : t;
    const intro =
      root === t ? null : el("p", {}, "It is a view and looks at the memory of ", tensorButton(model, root.i), ".");
    if (root.blocks.length === 0) {
      const buffer = model.data.buffers[root.buffer];
      const where = buffer
        ? `${bytes(root.size || root.nbytes)} in a ${buffer.usage} buffer of ${clean(buffer.buft)}, ` +
          "which the allocator does not touch."
        : "";
      return intro || where ? part("Memory", intro, where ? el("p", {}, where) : null) : null;
    }
    return part(
      "Memory",
      intro,
      root.blocks.map((b) => this.block(model, model.blocks[b])),
    );
  },

  block(model, block) {
    const buffer = model.data.buffers[block.buffer];
    const chunk = buffer.chunks.length > 1 ? `, chunk ${block.chunk}` : "";
    const before = this.neighbors(model, block, -1);
    const after = this.neighbors(model, block, 1);
    const list = (title, of, none) =>
      el(
        "div",
        { class: "who" },
        el("dt", {}, title),
        el(
          "dd",
          {},
          of.length ? of.slice(0, 6).map((b) => el("div", {}, tensorButton(model, b.tensor))) : none,
          of.length > 6 ? `and ${of.length - 6} more` : "",
        ),
      );
    const named = (b) => tensorButton(model, model.blocks[b].tensor);
    return el(
      "div",
      { class: "block" },
      el(
        "p",
        {},
        `${bytes(block.size)} at offset ${integer(block.offset)} of ${clean(buffer.buft)}${chunk}, `,
        this.when(model, block),
        block.kept ? "; kept, as it is a graph output" : "",
        ".",
      ),
      el(
        "dl",
        {},
        block.took >= 0
          ? el("div", { class: "who" }, el("dt", {}, "computed in place of"), el("dd", {}, named(block.took)))
          : list("these bytes had before", before, "nobody"),
        block.given >= 0
          ? el("div", { class: "who" }, el("dt", {}, "taken over in place by"), el("dd", {}, named(block.given)))
          : list("they go next to", after, "nobody"),
      ),
      el(
        "p",
        { class: "when" },
        eventButton(block.born, "when it got them"),
        block.died >= 0 ? [" · ", eventButton(block.died, "when it gave them back")] : "",
      ),
    );
  },

  when(model, block) {
    const name = (column) => {
      const t = model.order[column];
      return t === undefined ? "the start" : tensorButton(model, t);
    };
    return [
      block.start < 0 ? "from the start" : ["from ", name(block.start)],
      block.end < 0 ? " to the end" : [" to ", name(block.end)],
    ];
  },

  /** Those that have some of the same bytes next before or after, none of them behind another. */
  neighbors(model, block, way) {
    const lane = model.lanes.find((of) => of.chunk === block.chunk && model.data.buffers[block.buffer] === of.buffer);
    const overlaps = (a, b) => a.offset < b.offset + b.size && b.offset < a.offset + a.size;
    const end = (b) => (b.end < 0 ? model.columns : b.end);
    const found = [];
    const others = lane.blocks.filter(
      (b) => b !== block && overlaps(b, block) && (way < 0 ? b.born < block.born : b.born > block.born),
    );
    others.sort((a, b) => (way < 0 ? b.born - a.born : a.born - b.born) || end(a) - end(b));
    for (const other of others) if (!found.some((b) => overlaps(b, other))) found.push(other);
    return found;
  },

  sources(model, t) {
    if (t.kind === 2 || t.src.length === 0) return null;
    const items = t.src.map((s, slot) => {
      const of = model.tensors[s];
      if (!of) return null;
      const read = t.reads[slot];
      const copied = read !== undefined && read >= 0 && read !== s;
      return el(
        "li",
        {},
        tensorButton(model, s),
        " ",
        el("span", { class: "quiet", text: of.shape }),
        " ",
        of.backend >= 0 ? backendChip(model, of.backend) : "",
        copied ? [" read as its copy ", tensorButton(model, read)] : "",
      );
    });
    return part("Sources", el("ul", { class: "plain" }, items));
  },

  readers(model, t) {
    const rows = [
      ["Read by", t.users.filter((u) => model.tensors[u].viewOf !== t.i)],
      ["Views of it", t.views],
      ["Copies", t.copies],
    ];
    return rows
      .filter(([, of]) => of.length)
      .map(([title, of]) =>
        part(
          title,
          el(
            "p",
            { class: "names" },
            of.slice(0, 40).map((u, i) => [i ? ", " : "", tensorButton(model, u)]),
            of.length > 40 ? ` and ${of.length - 40} more` : "",
          ),
        ),
      );
  },

  advice(model, t) {
    const rows = t.split < 0 ? [] : model.data.advice.filter((row) => row.split === t.split);
    return rows.length
      ? part(
          "What would change its split",
          el(
            "ul",
            { class: "plain" },
            rows.map((row) => el("li", {}, adviceText(row))),
          ),
        )
      : null;
  },

  events(model, t) {
    if (t.events.length === 0) return null;
    const items = t.events
      .slice(0, 200)
      .map((e) => el("li", {}, eventButton(e, integer(e + 1)), " ", rich(model, model.telling(e))));
    return el(
      "details",
      { class: "part" },
      el("summary", {}, `${count(t.events.length, "event")} that speak${t.events.length === 1 ? "s" : ""} of it`),
      el("ol", { class: "plain events" }, items),
      t.events.length > 200 ? el("p", { class: "quiet", text: `and ${t.events.length - 200} more` }) : null,
    );
  },
};

function part(title, ...children) {
  return el("section", { class: "part" }, el("h3", { text: title }), children);
}

/** A button that goes to an event. */
function eventButton(e, text) {
  return el("button", {
    class: "link",
    type: "button",
    text,
    title: `event ${integer(e + 1)}`,
    onclick: () => store.set({ event: e }),
  });
}

/** An advice with what comes of it: splits, copied bytes, bytes of the compute buffers. */
function adviceText({ text, splits, copied, nbytes }) {
  const facts = [];
  if (splits !== null) facts.push(count(splits, "split"));
  if (copied !== null) facts.push(`${bytes(copied)} copied`);
  if (nbytes !== null) facts.push(`${bytes(nbytes)} of compute buffers`);
  return [withCode(text), facts.length ? el("span", { class: "quiet", text: " → " + facts.join(", ") }) : ""];
}
