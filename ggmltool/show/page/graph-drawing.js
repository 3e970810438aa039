/* How the graph is drawn: bands, folded layers, nodes, what they read, and the rail at the right edge. */

const SMALL = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
const STRONG = '600 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
/** The width of the whole program at the right edge. */
const RAIL = 12;
/** Ops that compute nothing. */
const VIEWS = new Set(["NONE", "VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"]);

const graphDrawing = {
  drawBand(ctx, item) {
    const { model, event } = store;
    const split = model.splits[item.split];
    const cut = split && model.isCut(item.split, event);
    const backend = cut ? model.backends[split.backend] : null;
    ctx.fillStyle = backend ? tint(backend) : paint("--leaf");
    ctx.globalAlpha = 0.35;
    ctx.fillRect(0, item.y, this.layout.width, item.h);
    ctx.globalAlpha = 1;
    ctx.fillStyle = backend ? backend.ink : paint("--line");
    ctx.fillRect(0, item.y, 4, item.h);
    if (this.scale < 0.3) return;
    ctx.fillStyle = paint("--ink");
    ctx.font = STRONG;
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    const title = !split
      ? ""
      : cut
        ? `split ${item.split} · ${clean(model.backends[split.backend].name)}`
        : "not cut yet";
    const y = item.y + BAND_HEAD / 2 + 2;
    ctx.fillText(title, 14, y);
    if (!cut || split.inputs.length === 0) return;
    const at = 14 + measured(ctx, title) + 12;
    const names = split.inputs
      .slice(0, 4)
      .map((input) => model.tensors[input.tensor].shown)
      .join(", ");
    const says = item.isFirst
      ? `copies ${bytes(split.nbytes)}: ${names}${split.inputs.length > 4 ? ", …" : ""}`
      : "goes on";
    ctx.font = SMALL;
    ctx.fillStyle = paint("--quiet");
    ctx.fillText(fitted(ctx, says, this.layout.width - at - 10), at, y);
  },

  drawFolded(ctx, item) {
    const { model } = store;
    const w = this.layout.width;
    const hits = this.hitsIn(item.run);
    const own = store.tensor >= 0 && this.layout.places[store.tensor] === item;
    box(ctx, 0, item.y, w, item.h, 5);
    ctx.fillStyle = paint("--paper");
    ctx.fill();
    ctx.lineWidth = own || hits ? 2 : 1;
    ctx.strokeStyle = paint(own ? "--accent" : hits ? "--hit" : "--line");
    ctx.stroke();
    this.drawStrip(ctx, item, w);
    if (this.scale < 0.3) return;
    ctx.fillStyle = paint("--ink");
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    ctx.font = STRONG;
    ctx.fillText("▸ " + item.run.title, 12, item.y + 16);
    const at = 24 + measured(ctx, "▸ " + item.run.title);
    ctx.font = SMALL;
    ctx.fillStyle = paint("--quiet");
    const about = this.aboutRun(item.run) + (hits ? ` · ${count(hits, "hit")}` : "");
    ctx.fillText(fitted(ctx, about, w - at - 12), at, item.y + 16);
  },

  /** The backends of the nodes in a folded block, in order. */
  drawStrip(ctx, item, w) {
    const { model, event } = store;
    const { start, end } = item.run;
    const each = (w - 24) / (end - start);
    for (let i = start; i < end; i++) {
      const backend = model.backends[model.backendAt(model.program[i], event)];
      ctx.fillStyle = backend ? backend.ink : paint("--line");
      ctx.fillRect(12 + (i - start) * each, item.y + 30, Math.max(each - (each > 4 ? 1 : 0), 0.6), 6);
    }
  },

  hitsIn(run) {
    if (!store.hits) return 0;
    let n = 0;
    for (let i = run.start; i < run.end; i++) if (store.hits.has(store.model.program[i])) n++;
    return n;
  },

  drawHead(ctx, item) {
    if (this.scale < 0.2) return;
    ctx.fillStyle = paint("--ink");
    ctx.font = STRONG;
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    ctx.fillText("▾ " + item.run.title, 12, item.y + 17);
    const at = 24 + measured(ctx, "▾ " + item.run.title);
    ctx.font = SMALL;
    ctx.fillStyle = paint("--quiet");
    ctx.fillText(this.aboutRun(item.run), at, item.y + 17);
  },

  drawNode(ctx, t) {
    const { model, tensor, event, hits } = store;
    const p = this.layout.places[t];
    const of = model.tensors[t];
    const backend = model.backends[model.backendAt(t, event)];
    const own = t === tensor;
    const hit = hits !== null && hits.has(t);
    if (this.scale > 0.3) box(ctx, p.x, p.y, p.w, p.h, 4);
    else {
      ctx.beginPath();
      ctx.rect(p.x, p.y, p.w, p.h);
    }
    const isPlain = !backend || VIEWS.has(of.op);
    ctx.fillStyle = isPlain ? paint("--paper") : tint(backend, 2);
    ctx.fill();
    ctx.strokeStyle = own ? paint("--accent") : hit ? paint("--hit") : backend ? backend.ink : paint("--line");
    ctx.lineWidth = own ? 3 : hit ? 2.5 : 0.8;
    ctx.stroke();
    if (this.scale < 0.42) return;
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    ctx.fillStyle = paint(isPlain ? "--ink" : "--on-tint");
    ctx.font = STRONG;
    const shape = fitted(ctx, of.op, p.w - 16);
    ctx.fillText(shape, p.x + 8, p.y + 11.5);
    const at = p.x + 8 + measured(ctx, shape) + 14;
    ctx.font = SMALL;
    ctx.textAlign = "right";
    const dims = fitted(ctx, of.shape, p.x + p.w - at);
    ctx.fillText(dims, p.x + p.w - 7, p.y + 11.5);
    ctx.textAlign = "left";
    ctx.fillText(fitted(ctx, of.shown, p.w - 16), p.x + 8, p.y + 26);
  },

  drawEdges(ctx, seen) {
    const { model } = store;
    ctx.lineWidth = 1;
    for (const dashed of [false, true]) {
      ctx.setLineDash(dashed ? [4, 3] : []);
      ctx.strokeStyle = paint(dashed ? "--copied" : "--edge-line");
      ctx.beginPath();
      for (const item of seen)
        if (item.what === "band") for (const t of item.nodes) this.edgesTo(ctx, model, t, dashed);
      ctx.stroke();
    }
    ctx.setLineDash([]);
  },

  edgesTo(ctx, model, t, dashed) {
    const to = this.layout.places[t];
    const { src, reads } = model.tensors[t];
    src.forEach((s, slot) => {
      const from = this.layout.places[s];
      if (!from || from === to) return;
      const copied = reads[slot] !== undefined && reads[slot] >= 0 && reads[slot] !== s;
      if (copied === dashed) curve(ctx, from, to, to.y - from.y < 420);
    });
  },

  drawChosenEdges(ctx) {
    if (store.tensor < 0) return;
    const own = this.layout.places[store.tensor];
    const t = store.model.tensors[store.tensor];
    const lines = [
      ["--source", t.src, (p) => own && [p, own]],
      ["--accent", t.users, (p) => (own ? [own, p] : null)],
    ];
    ctx.lineWidth = 2 / Math.min(this.scale, 1);
    for (const [color, of, ends] of lines) {
      ctx.strokeStyle = paint(color);
      ctx.beginPath();
      for (const s of of) {
        const p = this.layout.places[s];
        const pair = p && p !== own ? ends(p) : null;
        if (pair) curve(ctx, pair[0], pair[1], true);
      }
      ctx.stroke();
    }
  },

  /** Outlines what the chosen tensor reads and what reads it. */
  drawChosenBoxes(ctx) {
    if (store.tensor < 0) return;
    const own = this.layout.places[store.tensor];
    const t = store.model.tensors[store.tensor];
    ctx.lineWidth = 1.6 / Math.min(this.scale, 1);
    for (const [color, of] of [
      ["--source", t.src],
      ["--accent", own ? [] : t.users],
    ]) {
      ctx.strokeStyle = paint(color);
      for (const s of of) {
        const p = this.layout.places[s];
        if (!p || p.what !== "node") continue;
        box(ctx, p.x - 2, p.y - 2, p.w + 4, p.h + 4, 5);
        ctx.stroke();
      }
    }
  },

  /** The whole program at the right edge, and the part that is seen. */
  drawRail(ctx, width, tall) {
    const { model, event } = store;
    const x = width - RAIL - 2;
    const share = tall / this.layout.height;
    ctx.fillStyle = paint("--paper");
    ctx.fillRect(x - 4, 0, RAIL + 6, tall);
    for (const item of this.layout.items) {
      if (item.what === "head") continue;
      const backend =
        item.what === "band"
          ? model.backends[(model.splits[item.split] || { backend: -1 }).backend]
          : model.backends[model.backendAt(model.program[item.run.start], event)];
      ctx.fillStyle = backend ? backend.ink : paint("--line");
      ctx.fillRect(x, item.y * share, RAIL - 2, Math.max(item.h * share - 0.5, 0.5));
    }
    const [from, to] = [-this.y / this.scale, (tall - this.y) / this.scale].map((y) => clamp(y * share, 0, tall));
    if (from <= 0 && to >= tall) return;
    ctx.strokeStyle = paint("--accent");
    ctx.lineWidth = 2;
    ctx.strokeRect(x - 2, from + 1, RAIL + 2, Math.max(to - from - 2, 4));
  },
};

function box(ctx, x, y, w, h, radius) {
  ctx.beginPath();
  ctx.roundRect(x, y, w, h, radius);
}

/**
 * A line from one place to another: to the right in the same line, else down; of a long one that is not wanted whole,
 * its end.
 */
function curve(ctx, from, to, whole) {
  if (from.what === "node" && to.what === "node" && to.x > from.x && Math.abs(to.y - from.y) < 4 * BOX.down) {
    const [x0, y0, x1, y1] = [from.x + from.w, from.y + from.h / 2, to.x, to.y + to.h / 2];
    const bend = Math.min((x1 - x0) / 2, 40);
    ctx.moveTo(x0, y0);
    ctx.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
    return;
  }
  const x0 = from.what === "folded" ? 60 : from.x + from.w / 2;
  const x1 = to.what === "folded" ? 60 : to.x + to.w / 2;
  const [y0, y1] = [from.y + from.h, to.y];
  if (!whole) {
    ctx.moveTo(x1, y1 - 10);
    ctx.lineTo(x1, y1);
    return;
  }
  const bend = Math.min(Math.abs(y1 - y0) / 2, 40) + Math.abs(x1 - x0) * 0.05;
  ctx.moveTo(x0, y0);
  ctx.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1);
}
