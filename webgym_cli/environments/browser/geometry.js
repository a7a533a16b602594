// Visible boxes of elements, and points where a click reaches them; through shadow roots and same-origin documents. Which
// boxes lie over which is known from one pass: a hit test walks over the whole page, and is needed only where they overlap.
webgym.geometry = (() => {
  const { matches, memo, parentNode, parentOf, styleOf } = webgym.names;
  const { allOf, clip, documentOf, hitAt, intersect, offsetOf, rectOf } = webgym.frames;
  const EDGE = 3, HANDLE = 6, SCALE = 1000;
  const GRID = [0.5, 0.2, 0.8, 0.08, 0.92];
  // The share of a side from which on nothing is cut.
  const LESS = 0.9;
  // Pixels by which a click may land beside its point.
  const ROUNDING = 1;

  // Above any z-index; and pixels by which neighbours may overlap.
  const TOP_LAYER = 1e10, SLACK = 0.5;
  const ROOT = { key: [], context: [] };
  const SCREEN = { left: 0, top: 0, width: Infinity, height: Infinity };

  const frameOf = (element) => documentOf(element).defaultView?.frameElement;
  const aboveOf = (element) => parentOf(element) || frameOf(element);
  const outerOf = (element) => {
    const parent = parentNode(element);
    return parent?.nodeType === Node.ELEMENT_NODE ? parent : parent?.host || frameOf(element);
  };

  // The layer that an element begins, or the one that it is painted in.
  const layerOf = memo((element) => {
    const above = aboveOf(element), outer = above ? layerOf(above) : ROOT;
    const style = styleOf(element), { zIndex, position } = style, isTop = matches(element, ":modal,:popover-open");
    const isContext = isTop || zIndex !== "auto" || position === "fixed" || position === "sticky" || style.opacity !== "1" ||
      style.transform !== "none" || style.filter !== "none" || style.isolation !== "auto";
    if (!isContext && position === "static") return outer;
    const number = scan(document).numbers.get(element);
    const key = isTop ? [TOP_LAYER, number] : [...outer.context, Number(zIndex) || 0, number];
    return { key, context: isContext ? key : outer.context };
  });

  // A context's own content is between its negative layers and the others.
  const compare = (one, other) => {
    for (let at = 0; at < Math.max(one.length, other.length); at += 2) {
      const order = (one[at] ?? -0.5) - (other[at] ?? -0.5) || (one[at + 1] ?? 0) - (other[at + 1] ?? 0);
      if (order) return order;
    }
    return 0;
  };

  // What the scrolling and clipping elements around an element leave of the viewport; null if there are none.
  const limitsOf = memo((element) => {
    const { position } = styleOf(element), isFixed = position === "fixed";
    let at = parentOf(element);
    if (isFixed || position === "absolute") while (isInner(at) && !holds(at, isFixed)) at = parentOf(at);
    if (isInner(at)) return limitsIn(at);
    const frame = frameOf(element);
    return frame ? innerLimits(frame) : null; // the body clips at the window
  });

  const isInner = (at) => Boolean(at) && at.localName !== "body";

  // Whether an element is what one that is not in the flow of its text is placed in.
  const holds = (at, isFixed) => {
    const { transform, position, display } = styleOf(at);
    return display !== "contents" && (transform !== "none" || !isFixed && position !== "static");
  };

  const limitsIn = memo((element) => {
    const { overflow, display } = styleOf(element);
    return overflow === "visible" || display === "inline" || display === "contents" ? limitsOf(element) : innerLimits(element);
  });

  const NOTHING = { left: 0, top: 0, width: 0, height: 0 };
  const innerLimits = (element) => {
    const rect = clip(rectOf(element), offsetOf(element)) || NOTHING, outer = limitsOf(element);
    return outer ? intersect(rect, outer) || NOTHING : rect;
  };

  // Squares of the screen that a box is in; one list for boxes in many of them.
  const CELL = 64, ROW = 1000, LARGE = -1, MOST_CELLS = 40;
  const cellsOf = ({ left, top, width, height }) => {
    const [x0, y0] = [Math.floor(left / CELL), Math.floor(top / CELL)];
    const across = Math.floor((left + width) / CELL) - x0 + 1, down = Math.floor((top + height) / CELL) - y0 + 1;
    if (across * down > MOST_CELLS) return [LARGE];
    return Array.from({ length: across * down }, (_, at) => (y0 + Math.floor(at / across)) * ROW + x0 + at % across);
  };

  // The boxes in the viewport, in document order, each with its last descendant's number.
  const scan = memo(() => {
    const elements = allOf(document), numbers = new Map(elements.map((element, number) => [element, number]));
    const boxes = new Map(), ends = elements.map((_, number) => number), cells = new Map([[LARGE, []]]);
    for (let number = elements.length - 1; number > 0; number--) {
      const outer = numbers.get(outerOf(elements[number]));
      ends[outer] = Math.max(ends[outer], ends[number]);
    }
    for (const [number, element] of elements.entries()) {
      const rect = rectOf(element), seen = rect.width && rect.height && clip(rect, offsetOf(element));
      if (!seen) continue;
      const isModal = element.localName === "dialog" && matches(element, ":modal"); // with its backdrop
      const box = { element, number, end: ends[number], isModal, ...(isModal ? SCREEN : seen), blocks: false };
      boxes.set(element, box);
      for (const cell of cellsOf(box)) (cells.get(cell) || cells.set(cell, []).get(cell)).push(box);
    }
    return { numbers, boxes, cells };
  });

  // A box as far as it receives clicks; null if it does not.
  const receiving = memo((box) => {
    const { visibility, pointerEvents, interactivity } = styleOf(box.element);
    if (visibility !== "visible" || pointerEvents === "none" || interactivity === "inert") return null;
    const limits = box.isModal ? null : limitsOf(box.element);
    const part = limits ? intersect(box, limits) : box;
    return part && Object.assign(box, part);
  });

  const overlap = (one, other) => one.left + SLACK < other.left + other.width && other.left + SLACK < one.left + one.width &&
    one.top + SLACK < other.top + other.height && other.top + SLACK < one.top + one.height;

  const isAbove = (other, own) => {
    const [layer, lower] = [layerOf(other.element), layerOf(own.element)];
    return (layer !== lower && compare(layer.key, lower.key) || other.number - own.number) > 0;
  };

  // The boxes that may lie over a box of an element; null if only hit tests tell, as for the shapes of a picture.
  const coversOf = (element, box) => {
    const { boxes, cells } = scan(document), own = boxes.get(element);
    if (!own || element.localName === "area" || element instanceof SVGElement && element.localName !== "svg" ||
      styleOf(element).clipPath !== "none") return null;
    if (!receiving(own)) return null;
    const isOver = (other) => {
      const isWithin = other.number >= own.number && other.number <= own.end;
      return !isWithin && overlap(other, box) && isAbove(other, own) && receiving(other) && overlap(other, box);
    };
    const near = cellsOf(box);
    if (near[0] === LARGE) return Array.from(boxes.values()).filter(isOver);
    const found = new Set();
    for (const cell of [LARGE, ...near]) for (const other of cells.get(cell) || []) if (isOver(other)) found.add(other);
    return Array.from(found);
  };

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

  // What is disabled and lets the mouse through to what it is in.
  const isPassed = (element) => matches(element, ":disabled,[aria-disabled=true]") && styleOf(element).pointerEvents === "none";

  const reaches = (element, hit) => {
    for (let at = hit; at; at = parentOf(at)) {
      if (at === element) return true;
      if (at.localName === "label" && at.control === element) return true;
    }
    // a hidden field over a component's handles takes their clicks
    if (hit?.type === "range" && hit.parentElement === element.parentElement && hit.ariaHidden === "true") return true;
    return isPassed(element) && Boolean(hit) && reaches(hit, element);
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
  const isSmall = ({ box }) => box.width < 8 || box.height < 8;

  // What lies over a drawing and takes its clicks.
  const surfaceOf = (canvas) => {
    const box = boxOf(canvas), hit = box && hitAt(box.left + box.width / 2, box.top + box.height / 2);
    const over = hit && hit.localName !== "canvas" && canvas.parentElement?.contains(hit) && place(hit);
    return over && area(over) * 2 > area({ box }) ? over : null;
  };

  return Object.freeze({ area, boxOf, isPassed, isSmall, place, pointOf, pointWithin, reaches, same, surfaceOf, visiblePart, within });
})();
