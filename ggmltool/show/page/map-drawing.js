/* How a memory map is drawn: its blocks, outlines, the cursor, and what is there now. */

class MapDrawing extends MapAround {
  /** Says in words what a lane shows. */
  describe(made) {
    const { canvas, lane, title } = made;
    const live = this.model.live(lane, this.event);
    const used = live.reduce((n, block) => n + block.size, 0);
    canvas.setAttribute(
      "aria-label",
      `${title}, ${bytes(lane.size)}${made.bend ? `, its scale changes at ${bytes(made.bend)}` : ""}: now ${count(live.length, "tensor")} in ${bytes(used)}. ` +
        "Up and down choose a tensor that has memory now, W and S zoom, A and D move. The table below has the same.",
    );
  }

  draw() {
    this.width = theme.printing ? PAPER : this.root.clientWidth;
    if (!this.width || this.lanes.length === 0) return;
    this.related = this.relatedOf(store.side === this.side ? store.tensor : -1);
    this.drawOverview();
    this.drawRuler();
    this.lanes.forEach((made) => this.drawLane(made));
    this.drawAxis();
  }

  /** Tensors that are outlined: the chosen one and its copies; and its sources. */
  relatedOf(tensor) {
    if (tensor < 0) return { own: new Set(), sources: new Set() };
    const t = this.model.tensors[tensor];
    const root = t.viewOf >= 0 ? [t.viewOf] : [];
    const reads = t.reads.length ? t.reads : t.src;
    return {
      own: new Set([tensor, ...t.copies, ...(t.blocks.length ? [] : root)]),
      sources: new Set(t.kind === 2 ? [] : reads),
    };
  }

  clip(ctx, tall) {
    ctx.save();
    ctx.beginPath();
    ctx.rect(GUTTER, 0, this.plot, tall);
    ctx.clip();
  }

  drawLane(made) {
    const { canvas, lane } = made;
    const tall = canvas.tall;
    this.describe(made);
    const ctx = context(canvas, this.width, tall);
    ctx.font = FONT;
    ctx.fillStyle = paint("--plot");
    ctx.fillRect(GUTTER, 0, this.plot, tall);
    this.drawGrid(ctx, made);
    this.clip(ctx, tall);
    const view = {
      ctx,
      made,
      x0: this.span.from,
      x1: this.span.to,
      event: this.event,
      past: this.event < this.model.lastEvent,
    };
    view.reset = this.model.lastReset(2, view.event);
    for (const block of lane.blocks) this.drawBlock(view, block);
    for (const block of lane.blocks) this.outline(view, block);
    this.drawMarks(ctx, tall);
    ctx.restore();
    this.drawCursor(ctx, tall, false);
    this.drawNow(ctx, made);
    this.drawBend(ctx, made);
  }

  drawGrid(ctx, made) {
    const tall = made.canvas.tall;
    const [from, to] = [this.offsetAt(made, tall), this.offsetAt(made, 0)];
    if (!made.bend || to <= made.bend || from >= made.bend) return this.drawOffsets(ctx, made, from, to);
    this.drawOffsets(ctx, made, from, made.bend);
    return this.drawOffsets(ctx, made, made.bend, to);
  }

  /** Round offsets of a part of a lane with one scale. */
  drawOffsets(ctx, made, from, to) {
    const tall = made.canvas.tall;
    const [low, high] = [this.y(made, from), this.y(made, to)];
    const step = 2 ** Math.ceil(Math.log2(Math.max((to - from) / ((low - high) / 44), 1)));
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    for (let offset = Math.ceil(from / step) * step; offset <= to; offset += step) {
      const y = this.y(made, offset);
      if (made.bend && from >= made.bend && low - y < 14) continue;
      ctx.fillStyle = paint("--grid");
      ctx.fillRect(GUTTER, Math.round(y), this.plot, 1);
      ctx.fillStyle = paint("--quiet");
      ctx.fillText(bytes(offset), GUTTER - 8, clamp(y, 7, tall - 7));
    }
  }

  /** A line of dots where the scale changes, and beside it the sign of a broken axis. */
  drawBend(ctx, made) {
    if (!made.bend) return;
    const y = Math.round(this.y(made, made.bend));
    if (y < 3 || y > made.canvas.tall - 3) return;
    ctx.save();
    ctx.strokeStyle = paint("--quiet");
    ctx.lineWidth = 1.5;
    ctx.beginPath();
    for (const at of [y - 3, y + 1]) {
      ctx.moveTo(GUTTER - 5, at + 3);
      ctx.lineTo(GUTTER + 5, at - 1);
    }
    ctx.stroke();
    ctx.setLineDash([1.5, 3]);
    ctx.beginPath();
    ctx.moveTo(GUTTER + 6, y);
    ctx.lineTo(this.width, y);
    ctx.stroke();
    ctx.restore();
  }

  boxOf(view, block) {
    const left = this.left(block);
    const right = this.right(block);
    if (right < view.x0 || left > view.x1) return null;
    const y0 = this.y(view.made, block.offset + block.size);
    const y1 = this.y(view.made, block.offset);
    if (y1 < 0 || y0 > view.made.canvas.tall) return null;
    const x0 = Math.max(this.px(left), GUTTER - 4);
    const x1 = Math.min(this.px(right), GUTTER + this.plot + 4);
    return [x0, y0, Math.max(x1 - x0, 0.6), Math.max(y1 - y0, 0.6)];
  }

  drawBlock(view, block) {
    const box = this.boxOf(view, block);
    if (!box) return;
    const { ctx } = view;
    const [x, y, w, h] = box;
    const t = this.model.tensors[block.tensor];
    const unborn = view.past && block.born > view.event;
    ctx.globalAlpha = !view.past || this.model.isLive(block, view.event, view.reset) ? 1 : unborn ? 0.26 : 0.5;
    ctx.fillStyle = this.colorOf(t, block.i);
    ctx.fillRect(x, y, w, h);
    if (w > 3 && h > 3) {
      ctx.strokeStyle = paint("--edge");
      ctx.lineWidth = 0.75;
      ctx.strokeRect(x + 0.4, y + 0.4, w - 0.8, h - 0.8);
      if (block.took >= 0) this.drawTaken(ctx, x, y, h);
    }
    if (w > 30 && h > 11 && !unborn) this.label(ctx, t.shown, x, y, w, h);
    ctx.globalAlpha = 1;
  }

  drawTaken(ctx, x, y, h) {
    ctx.fillStyle = paint("--taken");
    for (let at = y + 1; at < y + h - 2; at += 5) ctx.fillRect(x, at, 1.5, Math.min(3, y + h - at));
  }

  label(ctx, text, x, y, w, h) {
    const seen = Math.max(x, GUTTER);
    const room = Math.min(x + w, GUTTER + this.plot) - seen - 10;
    const said = room > 14 ? fitted(ctx, text, room) : "";
    if (!said) return;
    ctx.fillStyle = paint("--on-tint");
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    ctx.fillText(said, seen + 5, y + Math.min(h / 2, Math.max(h - 8, 8)));
  }

  /** Results have the color of their backend, copies that of the one they come from, inputs none. */
  colorOf(t, parity) {
    if (t.kind === 2) {
      const from = this.model.backends[this.model.tensors[t.src[0]].backend];
      return from ? tint(from, parity % 2 ? 1 : 2) : paint("--leaf");
    }
    const backend = t.kind === 0 && this.model.backends[t.backend];
    return backend ? tint(backend, parity % 2 ? 1 : 2) : paint(parity % 2 ? "--leaf" : "--leaf-2");
  }

  outline(view, block) {
    const own = this.related.own.has(block.tensor);
    const source = this.related.sources.has(block.tensor);
    const hit = store.side === this.side && store.hits !== null && store.hits.has(block.tensor);
    if (!own && !source && !hit) return;
    const box = this.boxOf(view, block);
    if (!box) return;
    const [x, y, w, h] = box;
    const { ctx } = view;
    ctx.lineWidth = own ? 2.5 : 1.5;
    ctx.strokeStyle = paint(own ? "--accent" : source ? "--source" : "--hit");
    ctx.setLineDash(source && !own ? [4, 3] : []);
    ctx.strokeRect(x, y, Math.max(w, 2), Math.max(h, 2));
    ctx.setLineDash([]);
  }

  /** Where two reports begin to differ. */
  drawMarks(ctx, tall) {
    if (this.mark === undefined || this.mark < 0) return;
    const x = Math.round(this.px(this.model.xs[this.mark + 1]));
    ctx.fillStyle = paint("--differs");
    ctx.fillRect(x - 1, 0, 2, tall);
  }

  drawCursor(ctx, tall, withHandle) {
    const column = this.model.columnOfEvent(this.event);
    const x = this.px((this.model.xs[column + 1] + this.model.xs[column + 2]) / 2);
    if (x < GUTTER - 1 || x > GUTTER + this.plot + 1) return;
    ctx.fillStyle = paint("--cursor");
    ctx.fillRect(Math.round(x), withHandle ? 16 : 0, 1, tall);
    if (!withHandle) return;
    ctx.beginPath();
    ctx.moveTo(x - 4, 13);
    ctx.lineTo(x + 5, 13);
    ctx.lineTo(x + 0.5, 19);
    ctx.fill();
  }

  /** What has the memory right after the event, and between hatches what is free. */
  drawNow(ctx, made) {
    const x = GUTTER + this.plot + 10;
    const w = this.nowWidth - 2;
    const tall = made.canvas.tall;
    ctx.save();
    ctx.beginPath();
    ctx.rect(x, 0, w, tall);
    ctx.clip();
    ctx.fillStyle = paint("--plot");
    ctx.fillRect(x, 0, w, tall);
    for (const [offset, size] of this.model.free(made.lane, this.event)) this.hatch(ctx, made, x, w, offset, size);
    for (const block of this.model.live(made.lane, this.event)) {
      const t = this.model.tensors[block.tensor];
      const y = this.y(made, block.offset + block.size);
      const h = Math.max(this.y(made, block.offset) - y, 0.6);
      ctx.fillStyle = this.colorOf(t, block.i);
      ctx.fillRect(x, y, w, h);
      ctx.lineWidth = this.related.own.has(t.i) ? 2.5 : 0.75;
      ctx.strokeStyle = paint(this.related.own.has(t.i) ? "--accent" : "--edge");
      if (h > 3) ctx.strokeRect(x + 1, y, w - 2, h);
      if (h > 11) this.labelNow(ctx, t.shown, x, y, w, h);
    }
    ctx.restore();
  }

  labelNow(ctx, text, x, y, w, h) {
    ctx.fillStyle = paint("--on-tint");
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    ctx.fillText(fitted(ctx, text, w - 8), x + 4, y + h / 2);
  }

  hatch(ctx, made, x, w, offset, size) {
    const y = this.y(made, offset + size);
    const h = this.y(made, offset) - y;
    if (h < 2) return;
    ctx.save();
    ctx.beginPath();
    ctx.rect(x, Math.max(y, 0), w, Math.min(h, made.canvas.tall));
    ctx.clip();
    ctx.strokeStyle = paint("--hatch");
    ctx.lineWidth = 1;
    ctx.beginPath();
    const top = Math.max(y, 0);
    const low = Math.min(y + h, made.canvas.tall);
    for (let at = Math.floor(top / 7) * 7 - w; at < low; at += 7) {
      ctx.moveTo(x, at + w);
      ctx.lineTo(x + w, at);
    }
    ctx.stroke();
    if (low - top > 15) {
      const text = fitted(ctx, `${bytes(size)} free`, w - 8);
      ctx.fillStyle = paint("--plot");
      ctx.fillRect(x + 2, (top + low) / 2 - 7, measured(ctx, text) + 5, 14);
      ctx.fillStyle = paint("--quiet");
      ctx.textAlign = "left";
      ctx.textBaseline = "middle";
      ctx.fillText(text, x + 4, (top + low) / 2);
    }
    ctx.restore();
  }
}
