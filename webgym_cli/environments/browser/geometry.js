// Visible boxes of elements, and points where a click reaches them; through shadow roots and same-origin documents.
webgym.geometry = (() => {
  const { matches, memo, parentOf, styleOf } = webgym.names;
  const { clip, hitAt, intersect, offsetOf, rectOf } = webgym.frames;
  const { coversOf, limitsOf } = webgym.covers;
  const EDGE = 3, HANDLE = 6, SCALE = 1000;
  const GRID = [0.5, 0.2, 0.8, 0.08, 0.92];
  // The share of a side from which on nothing is cut.
  const LESS = 0.9;
  // Pixels by which a click may land beside its point.
  const ROUNDING = 1;

  // The visible box; for a link that wraps over several lines, its largest line.
  const wholeOf = (element, offset) => {
    let rect = rectOf(element);
    const { display } = styleOf(element);
    if (display === "contents") {
      const range = element.ownerDocument.createRange();
      range.selectNodeContents(element);
      rect = range.getBoundingClientRect();
    }
    if (!rect.width && !rect.height && matches(element, "[role=slider],:has(> [type=range])")) { // drawn by a style sheet
      rect = { left: rect.left - HANDLE, top: rect.top - HANDLE, width: 2 * HANDLE, height: 2 * HANDLE };
    }
    const whole = clip(rect, offset);
    const lines = display === "inline" ? element.getClientRects() : [];
    if (!whole || lines.length < 2) return whole;
    return Array.from(lines, (line) => clip(line, offset)).filter(Boolean)
      .reduce((best, line) => (!best || line.width * line.height > best.width * best.height ? line : best), null);
  };

  // What scrolling and clipping elements leave of it.
  const boxOf = (element) => {
    const whole = wholeOf(element, offsetOf(element)), limits = whole && limitsOf(element);
    return limits ? intersect(whole, limits) : whole;
  };

  const reaches = (element, hit) => {
    for (let at = hit; at; at = parentOf(at)) {
      if (at === element) return true;
      if (at.localName === "label" && at.control === element) return true;
    }
    // a hidden field over a component's handles takes their clicks
    return Boolean(hit) && hit.type === "range" && hit.parentElement === element.parentElement && hit.ariaHidden === "true";
  };

  // Candidate click points: spread over the box, at its edge if it is full of other elements, and on a drawn line.
  const candidates = function* (element, { left, top, width, height }, isFull) {
    if (element instanceof SVGGeometryElement && element.localName === "path") {
      const length = element.getTotalLength(), matrix = element.getScreenCTM();
      for (const share of matrix ? GRID : []) {
        const { x, y } = element.getPointAtLength(length * share).matrixTransform(matrix);
        if (x >= left && x <= left + width && y >= top && y <= top + height) yield [x, y];
      }
    }
    for (const fy of GRID) for (const fx of GRID) yield [left + width * fx, top + height * fy];
    if (!isFull) return;
    for (const share of GRID) {
      yield* [left + EDGE, left + width - EDGE].map((x) => [x, top + height * share, true]);
      yield* [top + EDGE, top + height - EDGE].map((y) => [left + width * share, y, true]);
    }
  };

  // What a click at a point reaches: the element where nothing lies over it, else what a hit test returns.
  const reachAt = (element, covers, x, y) => {
    const over = covers?.filter((cover) => within([x, y], cover, ROUNDING));
    if (over?.length === 0) return element;
    if (over?.some((cover) => cover.blocks)) return null;
    const hit = hitAt(x, y);
    if (!hit || reaches(element, hit)) return hit;
    for (const cover of over || []) if (reaches(cover.element, hit)) cover.blocks = true; // all over its box
    return null;
  };

  // A point where a click reaches the element, preferably not an element listed within; null if it is covered.
  const pointOf = (element, box, parts = []) => {
    const inner = parts.map((one) => ({ element: one, ...clip(rectOf(one), offsetOf(one)), isHit: false }));
    const covers = coversOf(element, box)?.concat(inner);
    let other = null;
    for (const [x, y, isEdge] of candidates(element, box, parts.length > 0)) {
      if (!isEdge && inner.some((one) => one.isHit && within([x, y], one))) continue;
      const hit = reachAt(element, covers, x, y);
      if (!hit) continue;
      const taken = inner.filter((one) => reaches(one.element, hit));
      if (!taken.length) return [x, y];
      for (const one of taken) one.isHit = true; // all over its box, but for its edges
      other ||= [x, y];
    }
    return other;
  };

  // The point at a position within a box.
  const pointWithin = (box, [across, down]) => [[box.left, box.width, across], [box.top, box.height, down]]
    .map(([start, side, share]) => start + Math.min((share / SCALE) * side, side - 1));

  const find = (element, transparent) => {
    const shown = element.checkVisibility({ visibilityProperty: true, opacityProperty: !transparent });
    if (!shown && styleOf(element).display !== "contents" && element.localName !== "area") return null;
    const box = boxOf(element), point = box && pointOf(element, box);
    return point ? { face: element, box, point } : null;
  };

  // The element with its visible box and a click point; null if it can't be seen or clicked.
  const opaqueOnly = memo((element) => find(element, false)), anyOpacity = memo((element) => find(element, true));
  const place = (element, transparent = false) => (transparent ? anyOpacity : opaqueOnly)(element);

  // The part of a box around its click point in which the element is seen: up to the boxes over it, or over its picture.
  const visiblePart = ({ face, aim, box, point }) => {
    const covers = aim || !within(point, box) ? [] : coversOf(face.ownerSVGElement || face, box) || [];
    const [x, y] = point;
    let { left, top } = box, right = left + box.width, bottom = top + box.height;
    for (const cover of covers.filter((one) => hides(one, face, box))) {
      const [end, foot] = [cover.left + cover.width, cover.top + cover.height];
      if (cover.top <= y && y <= foot) {
        if (end <= x) left = Math.max(left, end);
        if (cover.left >= x) right = Math.min(right, cover.left);
      }
      if (cover.left <= x && x <= end) {
        if (foot <= y) top = Math.max(top, foot);
        if (cover.top >= y) bottom = Math.min(bottom, cover.top);
      }
    }
    const [width, height] = [right - left, bottom - top];
    return width < box.width * LESS || height < box.height * LESS ? { left, top, width, height } : box;
  };

  // Whether a click at the middle of what a cover shares with a box reaches something else than the element.
  const hides = (cover, element, box) => {
    const { left, top, width, height } = intersect(cover, box) || cover;
    return !reaches(element, hitAt(left + width / 2, top + height / 2));
  };

  const same = (a, b) => Math.abs(a.left - b.left) < 4 && Math.abs(a.top - b.top) < 4 &&
    Math.abs(a.width - b.width) < 8 && Math.abs(a.height - b.height) < 8;

  const within = ([x, y], box, slack = 0) => x >= box.left - slack && x <= box.left + box.width + slack &&
    y >= box.top - slack && y <= box.top + box.height + slack;

  const area = ({ box }) => box.width * box.height;

  return Object.freeze({ area, boxOf, place, pointOf, pointWithin, reaches, same, visiblePart, within });
})();
