"use strict";
const report = JSON.parse(document.getElementById("document").textContent);
document.getElementById("title").textContent = report.title;
document.getElementById("summary").textContent =
  `ggml ${report.ggml} · ${report.step} ${report.graph} · ${report.nodes} nodes, ${report.splits.length} splits`;
