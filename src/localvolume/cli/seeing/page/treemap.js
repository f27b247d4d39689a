// The picture: nodes, and in each its volumes, as large as they are; d3-hierarchy lays it out.
// It is drawn on a canvas, as 10,000 elements of a document would be slow.

const HEADED = 80;

function leaves(volumes, node) {
  const byNode = new Map();
  for (const volume of volumes) {
    if (node && volume.node !== node) continue;
    if (!byNode.has(volume.node)) byNode.set(volume.node, []);
    byNode.get(volume.node).push(volume);
  }
  return [...byNode].map(([name, children]) => ({ name, children }));
}

function laidOut(volumes, node, width, height) {
  const nodes = leaves(volumes, node);
  // A volume whose size is not known, or is tiny, can still be seen and chosen.
  const root = d3.hierarchy({ children: nodes })
    .sum((one) => (one.children ? 0 : Math.max(one.capacityBytes || 0, 2 ** 20)))
    .sort((a, b) => b.value - a.value || (a.data.name < b.data.name ? -1 : 1));
  const headed = nodes.length <= HEADED;
  return d3.treemap().size([width, height]).round(true)
    .paddingInner(nodes.length > 300 ? 1 : 2)
    .paddingTop((one) => (one.depth === 1 && headed ? 18 : 0))(root);
}

function colours() {
  const style = getComputedStyle(document.documentElement);
  const named = (name) => style.getPropertyValue(name).trim();
  return {
    "bound": named("--good"), "available": named("--free"), "busy": named("--busy"),
    "bad-state": named("--bad"), ink: named("--ink"), mark: named("--mark"),
    accent: named("--accent"),
  };
}

function line(pen, x0, y0, x1, y1) {
  pen.beginPath(); pen.moveTo(x0, y0); pen.lineTo(x1, y1); pen.stroke();
}

function cell(pen, leaf, palette) {
  const width = leaf.x1 - leaf.x0, height = leaf.y1 - leaf.y0, kind = look(leaf.data);
  pen.fillStyle = palette[kind];
  pen.fillRect(leaf.x0, leaf.y0, width, height);
  pen.strokeStyle = palette.mark;
  pen.lineWidth = Math.min(2, Math.max(1, width / 12));
  // One stroke: busy. Two: somebody should look.
  if (kind === "busy" || kind === "bad-state") line(pen, leaf.x0, leaf.y1, leaf.x1, leaf.y0);
  if (kind === "bad-state") line(pen, leaf.x0, leaf.y0, leaf.x1, leaf.y1);
}

function label(pen, text, x, y, width, palette, plain) {
  if (width < 36) return;
  const fits = Math.floor((width - 8) / 6.6);
  pen.fillStyle = plain ? palette.ink : palette.mark;
  pen.fillText(text.length > fits ? `${text.slice(0, Math.max(1, fits - 1))}…` : text, x + 4, y);
}

function draw(canvas, root, chosen) {
  const pen = canvas.getContext("2d"), palette = colours();
  const scale = window.devicePixelRatio || 1;
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const nodes = root.children || [];
  for (const leaf of root.leaves()) {
    if (leaf.depth !== 2) continue;
    cell(pen, leaf, palette);
    const width = leaf.x1 - leaf.x0, height = leaf.y1 - leaf.y0;
    if (nodes.length <= HEADED && height >= 34 && width >= 70 && look(leaf.data) !== "bad-state") {
      const plain = look(leaf.data) === "available";
      label(pen, leaf.data.claim || leaf.data.name, leaf.x0, leaf.y0 + 11, width, palette, plain);
      label(pen, `${MARKS[leaf.data.state]} ${size(leaf.data.capacityBytes)}`,
        leaf.x0, leaf.y0 + 26, width, palette, plain);
    }
    if (look(leaf.data) === "bad-state" && width >= 40 && height >= 20) {
      pen.fillStyle = palette["bad-state"];
      pen.fillRect(leaf.x0 + 3, leaf.y0 + 3, Math.min(width - 6, 96), 16);
      label(pen, `${MARKS[leaf.data.state]} ${leaf.data.state}`, leaf.x0 + 1, leaf.y0 + 11,
        Math.min(width, 96), palette, false);
    }
  }
  if (nodes.length <= HEADED) {
    for (const node of nodes) {
      label(pen, node.data.name, node.x0 - 4, node.y0 + 9, node.x1 - node.x0, palette, true);
    }
  }
  if (chosen) {
    pen.strokeStyle = palette.accent;
    pen.lineWidth = 3;
    pen.strokeRect(chosen.x0 + 1, chosen.y0 + 1, chosen.x1 - chosen.x0 - 2,
      chosen.y1 - chosen.y0 - 2);
  }
}

function at(root, x, y) {
  const inside = (one) => x >= one.x0 && x < one.x1 && y >= one.y0 && y < one.y1;
  const node = (root.children || []).find(inside);
  return node ? (node.children || []).find(inside) || node : null;
}
