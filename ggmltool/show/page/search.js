/* Search: words in names, ops, shapes and backends of tensors; the hits are marked in map and graph. */

const MOST_HITS = 40;

const search = {
  found: [],
  at: -1,

  start() {
    this.input = byId("search");
    this.list = byId("found");
    this.input.addEventListener("input", () => this.look());
    this.input.addEventListener("focus", () => this.look());
    this.input.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("pointerdown", (event) => event.target.closest("#search-box") || this.close());
    byId("search-box").addEventListener(
      "focusout",
      (event) => event.relatedTarget && !event.relatedTarget.closest("#search-box") && this.close(),
    );
    store.listen((changed) => changed.has("side") && this.look(false));
  },

  /** Looks for the words; opens the list of what was found. */
  look(open = true) {
    const words = this.input.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const { model } = store;
    const text = (t) =>
      `${t.searched} ${model.backends[t.backend] ? model.backends[t.backend].name.toLowerCase() : ""}`;
    const all =
      words.length === 0
        ? []
        : model.tensors.filter((t) => t.kind < 3 && words.every((word) => text(t).includes(word)));
    this.found = all.sort((a, b) => rank(a, words) - rank(b, words) || a.i - b.i).slice(0, MOST_HITS);
    this.at = -1;
    store.set({ hits: words.length ? new Set(all.map((t) => t.i)) : null });
    byId("found-count").textContent = words.length ? count(all.length, "hit") : "";
    fill(
      this.list,
      this.found.map((t, i) => this.option(model, t, i)),
      all.length > MOST_HITS
        ? el("li", { class: "quiet more", role: "presentation", text: `and ${integer(all.length - MOST_HITS)} more` })
        : null,
    );
    this.show(open && words.length > 0 && document.activeElement === this.input);
  },

  option(model, t, i) {
    const choose = (event) => {
      event.preventDefault();
      this.choose(i);
    };
    return el(
      "li",
      { role: "option", id: `found-${i}`, "aria-selected": "false", onpointerdown: choose },
      name(t.shown),
      " ",
      el("span", { class: "quiet", text: `${t.op} ${t.shape} ` }),
      t.backend >= 0 ? backendChip(model, t.backend) : "",
    );
  },

  show(open) {
    this.list.hidden = !open || this.found.length === 0;
    this.input.setAttribute("aria-expanded", String(!this.list.hidden));
    if (!open) this.input.removeAttribute("aria-activedescendant");
  },

  close() {
    this.show(false);
  },

  key(event) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") this.move(event.key === "ArrowDown" ? 1 : -1);
    else if (event.key === "Enter" && this.found.length) this.choose(Math.max(this.at, 0));
    else if (event.key === "Escape") this.escape();
    else return;
    event.preventDefault();
    event.stopPropagation();
  },

  move(by) {
    if (this.list.hidden) this.look();
    if (this.found.length === 0) return;
    this.at = (this.at + by + this.found.length) % this.found.length;
    [...this.list.querySelectorAll("[role=option]")].forEach((option, i) => {
      option.setAttribute("aria-selected", String(i === this.at));
      if (i === this.at) option.scrollIntoView({ block: "nearest" });
    });
    this.input.setAttribute("aria-activedescendant", `found-${this.at}`);
  },

  choose(i) {
    store.set({ tensor: this.found[i].i });
    this.close();
  },

  escape() {
    if (!this.list.hidden) return this.close();
    this.input.value = "";
    this.look();
    return this.input.blur();
  },
};

/** Whole names first, then those that begin so. */
function rank(t, words) {
  const shown = t.shown.toLowerCase();
  const said = words.join(" ");
  return shown === said ? 0 : shown.startsWith(said) ? 1 : shown.includes(said) ? 2 : 3;
}
