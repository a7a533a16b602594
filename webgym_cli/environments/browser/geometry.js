// Boxes of elements in the viewport, hit testing, and click points; through shadow roots and same-origin documents.
webgym.geometry = (() => {
  const { rootOf, parentOf } = webgym.names;
  const MIN_SIDE = 3, EDGE = 3, POINTS = 24;
  const GRID = [0.5, 0.2, 0.8, 0.08, 0.92];
  // The search for the edge of what covers an element: probes this many pixels apart, halvings between two of them, the
  // inset of the last one, and the share of a side from which on nothing is cut.
  const PROBE = 48, MOST_PROBES = 6, HALVINGS = 6, INSET = 2, LESS = 0.9;

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

  // Where a frame's content begins, in coordinates of the frame's own document.
  const contentOf = (frame) => {
    const rect = frame.getBoundingClientRect(), style = getComputedStyle(frame);
    return { x: rect.left + frame.clientLeft + parseFloat(style.paddingLeft), y: rect.top + frame.clientTop + parseFloat(style.paddingTop) };
  };

  // Opaque frames by number: Python resolves the element behind a number to the frame's document.
  const frames = [];
  const numberOf = (frame) => (frames.includes(frame) ? frames.indexOf(frame) : frames.push(frame) - 1);
  const originOf = (number) => {
    const frame = frames[number];
    if (!frame?.isConnected) return null;
    const offset = offsetOf(frame), content = contentOf(frame);
    return [offset.x + content.x, offset.y + content.y];
  };

  const opaque = () => {
    const shown = [];
    inside(document, (element) => {
      if (isOpaque(element) && element.checkVisibility({ visibilityProperty: true }) &&
        clip(element.getBoundingClientRect(), offsetOf(element))) shown.push(numberOf(element));
    });
    return shown;
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
        const origin = contentOf(inner);
        [x, y, root] = [x - origin.x, y - origin.y, content];
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
      const origin = contentOf(view.frameElement);
      offset.x += origin.x;
      offset.y += origin.y;
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

  // The part of a box around its click point in which the element is seen, not what covers it.
  const visiblePart = ({ face, aim, box, point }) => {
    const sees = (x, y) => { const hit = deepest(x, y); return hit && reaches(face, hit); };
    const [x, y] = point, right = box.left + box.width, bottom = box.top + box.height;
    if (aim || !within(point, box)) return box;
    const reach = (from, far, isSeen) => {
      const steps = Math.min(MOST_PROBES, Math.max(1, Math.floor(Math.abs(far - from) / PROBE)));
      let seen = from, hidden = null;
      for (let step = 1; step <= steps && hidden === null; step++) {
        const at = from + (far - from) * step / steps;
        if (isSeen(at)) seen = at;
        else hidden = at;
      }
      if (hidden === null) return far;
      for (let turn = 0; turn < HALVINGS; turn++) {
        const middle = (seen + hidden) / 2;
        [seen, hidden] = isSeen(middle) ? [middle, hidden] : [seen, middle];
      }
      return seen;
    };
    const across = (far) => reach(x, far, (at) => sees(at, y)), down = (far) => reach(y, far, (at) => sees(x, at));
    const left = across(box.left + INSET) - INSET, top = down(box.top + INSET) - INSET;
    const width = across(right - INSET) + INSET - left, height = down(bottom - INSET) + INSET - top;
    return width < box.width * LESS || height < box.height * LESS ? { left, top, width, height } : box;
  };

  const same = (a, b) => Math.abs(a.left - b.left) < 4 && Math.abs(a.top - b.top) < 4 &&
    Math.abs(a.width - b.width) < 8 && Math.abs(a.height - b.height) < 8;

  const within = (point, box) => point[0] >= box.left && point[0] <= box.left + box.width &&
    point[1] >= box.top && point[1] <= box.top + box.height;

  const area = ({ box }) => box.width * box.height;

  return Object.freeze({ area, boxOf, deepest, innerDocument, inside, isOpaque, numberOf, originOf, offsetOf, topmostElements, opaque, place, pointOf, same,
    through, visiblePart, within, frame: (number) => frames[number] });
})();
