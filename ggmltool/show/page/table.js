/* Tables that are sorted by their heads, filtered by words, and hold only the rows that are seen where they are
   long. */

const WHOLE = 150;
const tables = [];

class Table {
  /**
   * Columns are {title, number, value(row), cell(row)}: `value` sorts and is searched, `cell` is what is shown (the
   * value, if left out). `about` is the caption; rows for which `chosen` is true are marked.
   */
  constructor({ about, columns, rows, chosen, hasFilter = true }) {
    Object.assign(this, { columns, rows, chosen, about, by: -1, down: false, query: "" });
    this.shown = rows;
    this.heads = columns.map((column, i) => this.head(column, i));
    this.body = el("tbody", {});
    this.table = el(
      "table",
      { "aria-rowcount": rows.length + 1 },
      el("caption", { class: "hidden-text", text: about }),
      el("thead", {}, el("tr", {}, this.heads)),
      this.body,
    );
    this.scroller = el(
      "div",
      { class: "table-scroll", tabindex: "0", role: "region", "aria-label": about },
      this.table,
    );
    this.scroller.addEventListener(
      "scroll",
      perFrame("table", () => this.draw()),
      { passive: true },
    );
    this.counter = el("span", { class: "quiet", role: "status" });
    const input = el("input", {
      type: "search",
      placeholder: "Filter",
      "aria-label": `Filter: ${about}`,
      oninput: () => this.filter(input.value),
    });
    const bar = hasFilter && rows.length > 8 ? el("div", { class: "table-bar" }, input, this.counter) : null;
    this.element = el("div", { class: "table-box" }, bar, this.scroller);
    this.first = -1;
    tables.push(this);
    this.draw();
  }

  head(column, i) {
    const button = el("button", { type: "button", onclick: () => this.sort(i) }, column.title);
    return el("th", { scope: "col", class: column.number ? "number" : null }, button);
  }

  sort(by) {
    this.down = this.by === by ? !this.down : Boolean(this.columns[by].number);
    this.by = by;
    this.heads.forEach((head, i) => {
      if (i === by) head.setAttribute("aria-sort", this.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    this.arrange();
  }

  filter(query) {
    this.query = query.trim().toLowerCase();
    this.arrange();
  }

  arrange() {
    const words = this.query.split(/\s+/).filter(Boolean);
    let rows =
      words.length === 0
        ? this.rows.slice()
        : this.rows.filter((row) => {
            const text = this.columns
              .map((column) => column.value(row) ?? "")
              .join(" ")
              .toLowerCase();
            return words.every((word) => text.includes(word));
          });
    if (this.by >= 0) {
      const { value } = this.columns[this.by];
      const sign = this.down ? -1 : 1;
      rows = rows
        .map((row) => [value(row) ?? -1, row])
        .sort(([a], [b]) => sign * (a < b ? -1 : a > b ? 1 : 0))
        .map(([, row]) => row);
    }
    this.shown = rows;
    this.counter.textContent = this.query ? `${integer(rows.length)} of ${integer(this.rows.length)}` : "";
    this.scroller.scrollTop = 0;
    this.first = -1;
    this.draw();
  }

  draw() {
    const { shown } = this;
    const all = theme.printing || shown.length <= WHOLE;
    const tall = this.rowHeight();
    const seen = Math.ceil((this.scroller.clientHeight || 420) / tall);
    const first = all
      ? 0
      : clamp(Math.floor(this.scroller.scrollTop / tall) - 10, 0, Math.max(shown.length - seen, 0));
    const last = all ? shown.length : Math.min(first + seen + 24, shown.length);
    if (this.first >= 0 && first === this.first && last === this.last) return;
    [this.first, this.last] = [first, last];
    const rows = shown.slice(first, last).map((row, k) => this.row(row, first + k));
    fill(this.body, this.gap(first * tall), rows, this.gap((shown.length - last) * tall));
    if (shown.length === 0)
      fill(
        this.body,
        el("tr", {}, el("td", { colspan: this.columns.length, class: "quiet", text: "Nothing has these words." })),
      );
  }

  rowHeight() {
    return 28;
  }

  gap(height) {
    if (height <= 0) return null;
    const cell = el("td", { colspan: this.columns.length, class: "gap" });
    cell.style.height = height + "px";
    return el("tr", { class: "gap", "aria-hidden": "true" }, cell);
  }

  row(row, i) {
    const cells = this.columns.map((column, c) => {
      const cell = column.cell ? column.cell(row) : column.value(row);
      const said =
        cell === null || cell === undefined
          ? ""
          : typeof cell === "number"
            ? integer(cell)
            : typeof cell === "string"
              ? clean(cell)
              : cell;
      return c === 0
        ? el("th", { scope: "row", class: column.number ? "number" : null }, said)
        : el("td", { class: column.number ? "number" : column.wide ? "wide" : null }, said);
    });
    const shown = el("tr", { "aria-rowindex": i + 2, class: this.chosen(row) ? "chosen" : null }, cells);
    shown.shows = row;
    return shown;
  }

  again() {
    this.first = -1;
    this.draw();
  }

  /** Marks the rows of what is chosen. */
  mark() {
    for (const row of this.body.rows)
      row.classList.toggle("chosen", row.shows !== undefined && this.chosen(row.shows));
  }
}
