// Boxes of elements in the viewport, hit testing, and click points; through shadow roots and same-origin documents.
webgym.geometry = (() => {
  const { rootOf, parentOf } = webgym.names;
  const MIN_SIDE = 3, EDGE = 3, POINTS = 24;
  const GRID = [0.5, 0.2, 0.8, 0.08, 0.92];

  const clip = (rect, offset) => {
    const left = Math.max(rect.left + offset.x, 0), top = Math.max(rect.top + offset.y, 0);
    const width = Math.min(rect.right + offset.x, innerWidth) - left;
    const height = Math.min(rect.bottom + offset.y, innerHeight) - top;
    return width >= MIN_SIDE && height >= MIN_SIDE ? { left, top, width, height } : null;
  };

  // The visible box; for a link that wraps over several lines, its largest line.
  const boxOf = (element, offset) => {
    let rect = element.getBoundingClientRect();
    if (getComputedStyle(element).display === "contents") {
      const range = element.ownerDocument.createRange();
      range.selectNodeContents(element);
      rect = range.getBoundingClientRect();
    }
    const whole = clip(rect, offset);
    const lines = getComputedStyle(element).display === "inline" ? element.getClientRects() : [];
    if (!whole || lines.length < 2) return whole;
    return Array.from(lines, (line) => clip(line, offset)).filter(Boolean)
      .reduce((best, line) => (!best || line.width * line.height > best.width * best.height ? line : best), null);
  };

  const FRAMES = /^(iframe|frame|object|embed)$/;
  const innerDocument = (element) => {
    if (!FRAMES.test(element.localName)) return null;
    try { return element.contentDocument || element.getSVGDocument?.() || null; } catch { return null; } // another origin
  };

  const isOpaque = (element) => Boolean(element) && FRAMES.test(element.localName) && !innerDocument(element);

  const opaque = () => {
    const boxes = [];
    inside(document, (element) => {
      const box = isOpaque(element) && element.checkVisibility({ visibilityProperty: true }) && clip(element.getBoundingClientRect(), offsetOf(element));
      if (box) boxes.push([box.left, box.top, box.width, box.height]);
    });
    return boxes;
  };

  const through = (points) => points.map(([x, y]) => isOpaque(deepest(x, y)));

  // The element at a viewport point, through shadow roots and same-origin documents.
  const deepest = (x, y) => {
    for (let root = document, found = null; ;) {
      const inner = root.elementFromPoint(x, y);
      if (!inner || inner === found) return found;
      found = inner;
      const content = innerDocument(inner);
      if (content) {
        const box = inner.getBoundingClientRect();
        [x, y, root] = [x - box.left - inner.clientLeft, y - box.top - inner.clientTop, content];
      } else if (rootOf(inner)) root = rootOf(inner);
      else return found;
    }
  };

  const reaches = (element, hit) => {
    for (let at = hit; at; at = parentOf(at)) {
      if (at === element) return true;
      if (at.localName === "label" && at.control === element) return true;
    }
    return false;
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
      yield* [left + EDGE, left + width - EDGE].map((x) => [x, top + height * share]);
      yield* [top + EDGE, top + height - EDGE].map((y) => [left + width * share, y]);
    }
  };

  // A point where a click reaches the element, preferably not an element listed within; null if it is covered.
  const pointOf = (element, box, within = []) => {
    let other = null;
    for (const [x, y] of candidates(element, box, within.length > 0)) {
      const hit = deepest(x, y);
      if (hit && reaches(element, hit) && !within.some((inner) => reaches(inner, hit))) return [x, y];
      if (hit && reaches(element, hit)) other ||= [x, y];
    }
    return other;
  };

  const offsetOf = (element) => {
    const offset = { x: 0, y: 0 };
    for (let view = element.ownerDocument.defaultView; view && view !== window; view = view.parent) {
      const frame = view.frameElement, rect = frame.getBoundingClientRect();
      offset.x += rect.left + frame.clientLeft;
      offset.y += rect.top + frame.clientTop;
    }
    return offset;
  };

  const inside = (root, visit) => {
    for (const element of root.querySelectorAll("*")) {
      if (visit(element) === false) return;
      const inner = rootOf(element) || innerDocument(element);
      if (inner) inside(inner, visit);
    }
  };

  // Topmost elements at a grid of viewport points and their ancestors; the cost is independent of the document's size.
  const topmostElements = function* () {
    for (let row = 0.5; row < POINTS; row++) {
      for (let column = 0.5; column < POINTS; column++) {
        for (let at = deepest(innerWidth * column / POINTS, innerHeight * row / POINTS); at; at = parentOf(at)) yield at;
      }
    }
  };

  // Clips a box to its scrolling and clipping ancestors.
  const cut = (element, box) => {
    const offset = offsetOf(element);
    let { left, top } = box, right = left + box.width, bottom = top + box.height;
    for (let at = parentOf(element); at; at = parentOf(at)) {
      // the body clips at the window
      if (/^(body|html)$/.test(at.localName) || getComputedStyle(at).overflow === "visible") continue;
      const rect = at.getBoundingClientRect();
      [left, top] = [Math.max(left, rect.left + offset.x), Math.max(top, rect.top + offset.y)];
      [right, bottom] = [Math.min(right, rect.right + offset.x), Math.min(bottom, rect.bottom + offset.y)];
    }
    const isLess = right - left < box.width || bottom - top < box.height;
    return isLess && right - left >= MIN_SIDE && bottom - top >= MIN_SIDE ? { left, top, width: right - left, height: bottom - top } : null;
  };

  const place = (element, transparent = false) => {
    const box = boxOf(element, offsetOf(element));
    const shown = element.checkVisibility({ visibilityProperty: true, opacityProperty: !transparent });
    if (!box || !(shown || getComputedStyle(element).display === "contents")) return null;
    const point = pointOf(element, box);
    if (point) return { face: element, box, point };
    // only an edge may be visible, which the points of the whole box missed
    const rest = cut(element, box), edge = rest && pointOf(element, rest);
    return edge && { face: element, box: rest, point: edge };
  };

  const same = (a, b) => Math.abs(a.left - b.left) < 4 && Math.abs(a.top - b.top) < 4 &&
    Math.abs(a.width - b.width) < 8 && Math.abs(a.height - b.height) < 8;

  const within = (point, box) => point[0] >= box.left && point[0] <= box.left + box.width &&
    point[1] >= box.top && point[1] <= box.top + box.height;

  const area = ({ box }) => box.width * box.height;

  return Object.freeze({ area, boxOf, deepest, innerDocument, inside, isOpaque, offsetOf, topmostElements, opaque, place, pointOf, same,
    through, within });
})();
