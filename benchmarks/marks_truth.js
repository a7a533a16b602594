// What a person would take for a control, by hit-testing points all over the viewport; independent of the engine's eyes.
// Called with {step, extra, points}; answers the controls, and which of them lies at each of the points asked for.
({ step, extra, points }) => {
  const KINDS = "a[href],button,input,select,option,textarea,summary,.CodeMirror,.monaco-editor,video[controls],audio[controls],[role=button],[role=link]," +
    "[role=checkbox],[role=radio],[role=tab],[role=option],[role=menuitem],[role=menuitemcheckbox],[role=menuitemradio]," +
    "[role=switch],[role=textbox],[role=searchbox],[role=combobox],[role=slider],[role=spinbutton],[role=treeitem]," +
    "[contenteditable=''],[contenteditable=true],[contenteditable=plaintext-only],[aria-sort]" + (extra ? `,${extra}` : "");
  const FRAMES = 4; // levels from what is seen of a field to what is around both
  const rootOf = (element) => element.shadowRoot || window.truthRoots?.get(element);
  const above = (node) => node.assignedSlot || node.parentElement || node.getRootNode().host || null;
  // where a component shows its own text: the hit is the component, not the label within it around the slot
  const slotOf = (hit, [x, y]) => {
    const isAt = ({ left, right, top, bottom }) => left <= x && x <= right && top <= y && y <= bottom;
    const boxes = (node) => { const range = new Range(); range.selectNode(node); return [...range.getClientRects()]; };
    return [...hit.childNodes].find((node) => node.nodeType === Node.TEXT_NODE && node.assignedSlot && boxes(node).some(isAt))?.assignedSlot;
  };
  const deep = (x, y) => {
    let hit = document.elementFromPoint(x, y), at = [x, y];
    for (let found = null; hit && hit !== found;) {
      found = hit;
      let inner = null;
      if (hit.localName === "iframe") {
        try { inner = hit.contentDocument; } catch { inner = null; }
        const box = hit.getBoundingClientRect();
        if (inner) at = [at[0] - box.left - hit.clientLeft, at[1] - box.top - hit.clientTop];
      } else inner = rootOf(hit);
      hit = inner?.elementFromPoint(...at) || hit;
    }
    return hit && slotOf(hit, at) || hit;
  };
  const pointer = (element) => /^(pointer|grab|move)$/.test(getComputedStyle(element).cursor);
  const control = (hit) => {
    for (let at = hit; at && at !== document.body; at = above(at)) {
      if (at.matches(":disabled,[aria-disabled=true]") && at.matches(KINDS)) return at;
      if (at.matches(KINDS)) return at;
      // a row that is a label, too: a person sees the row
      if (at.localName === "label" && at.control) return at.closest("[role=option],[role=treeitem]") || at.control;
      const outer = above(at), label = at.closest(`label,${KINDS}`)?.control; // but a button in a label is no part of it
      if (label && pointer(at)) return label;
      if (pointer(at) && !(outer && pointer(outer))) return at;
    }
    return null;
  };
  const text = (element) => (element.innerText || element.value || "").replace(/\s+/g, " ").trim();
  const seen = new Map();
  const whole = (found) => {
    for (let at = found && above(found); at; at = above(at)) {
      if (seen.has(at) && (text(at) === text(found) || at.localName.includes("-"))) return at;
    }
    return found;
  };
  for (let y = step / 2; y < innerHeight; y += step) {
    for (let x = step / 2; x < innerWidth; x += step) {
      const found = control(deep(x, y));
      // what is transparent is not seen, but for a field that lies over its picture
      if (found && (found.localName === "input" || found.checkVisibility({ opacityProperty: true }))) seen.set(found, (seen.get(found) || 0) + 1);
    }
  }
  // a line is nothing to click, whatever its role: a menu's separators are disabled boxes to some
  const thick = (found) => { const { width, height } = found.getBoundingClientRect(); return Math.min(width, height) >= 3; };
  const controls = [...new Set([...seen.keys()].map(whole))].filter((found) => seen.get(found) >= 2 && thick(found));
  const tell = (found) => `${found.localName}${found.className ? "." + String(found.className.baseVal ?? found.className).split(" ")[0] : ""} ${text(found).slice(0, 40)}`;
  // the frame of a field stands for it
  const framed = (hit) => {
    for (let at = hit, level = 0; at && level < FRAMES; at = above(at), level++) {
      const fields = controls.filter((one) => one !== at && at.contains(one));
      if (fields.length) return fields.length === 1 && /^(input|textarea)$/.test(fields[0].localName) ? fields[0] : null;
    }
    return null;
  };
  return { controls: controls.map(tell), at: points.map(([x, y]) => {
    const hit = deep(x, y), found = whole(control(hit)) || framed(hit);
    const index = controls.indexOf(found);
    return found && index < 0 ? -2 : index;
  }) };
}
