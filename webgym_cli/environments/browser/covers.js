// Which boxes lie over which, from one pass over the page: a hit test walks over the whole page, and is needed only where
// boxes overlap.
webgym.covers = (() => {
  const { getter, matches, memo, parentOf, styleOf } = webgym.names;
  const { allOf, clip, documentOf, intersect, offsetOf, rectOf } = webgym.frames;
  const parentNode = getter(Node, "parentNode");
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
  const layerOf = (element, style, outer, number) => {
    const isTop = matches(element, ":modal,:popover-open");
    const isContext = isTop || style.zIndex !== "auto" || style.opacity !== "1" || style.transform !== "none" ||
      style.filter !== "none" || style.isolation !== "auto" || style.position === "fixed" || style.position === "sticky";
    if (!isContext && style.position === "static") return outer;
    const key = isTop ? [TOP_LAYER, number] : [...outer.context, Number(style.zIndex) || 0, number];
    return { key, context: isContext ? key : outer.context };
  };

  // A context's own content is between its negative layers and the others.
  const compare = (one, other) => {
    for (let at = 0; at < Math.max(one.length, other.length); at += 2) {
      const order = (one[at] ?? -0.5) - (other[at] ?? -0.5) || (one[at + 1] ?? 0) - (other[at + 1] ?? 0);
      if (order) return order;
    }
    return 0;
  };

  // Read once: all children of an element ask for it.
  const boxStyleOf = memo((element) => {
    const { position, transform, display, overflow } = styleOf(element);
    return { position, transform, display, overflow };
  });

  // What the scrolling and clipping elements around an element leave of the viewport; null if there are none.
  const limitsOf = memo((element) => {
    const { position } = boxStyleOf(element);
    for (let at = parentOf(element); at && at.localName !== "body"; at = parentOf(at)) {
      const style = boxStyleOf(at), isMoved = style.transform !== "none";
      if (style.display === "contents" || position === "fixed" && !isMoved) continue;
      if (position === "absolute" && style.position === "static" && !isMoved) continue; // it is held further out
      return style.overflow === "visible" || style.display === "inline" ? limitsOf(at) : innerLimits(at);
    }
    const frame = frameOf(element);
    return frame ? innerLimits(frame) : null; // the body clips at the window
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

  // The boxes in the viewport that receive clicks, in document order, each with its layer and its last descendant's number.
  const scan = memo(() => {
    const inSight = new Map(), needed = new Set(), layers = new Map(), boxes = new Map();
    for (const element of allOf(document)) {
      const rect = rectOf(element), box = rect.width && rect.height && clip(rect, offsetOf(element));
      if (box) inSight.set(element, box);
      for (let at = box && element; at && !needed.has(at); at = aboveOf(at)) needed.add(at);
    }
    const elements = allOf(document).filter((element) => needed.has(element));
    const numbers = new Map(elements.map((element, number) => [element, number]));
    for (const [number, element] of elements.entries()) {
      const style = styleOf(element), layer = layerOf(element, style, layers.get(aboveOf(element)) || ROOT, number);
      layers.set(element, layer);
      if (!inSight.has(element) || style.visibility !== "visible" || style.pointerEvents === "none" ||
        style.interactivity === "inert") continue;
      const isModal = layer.key[0] === TOP_LAYER && matches(element, ":modal"); // with its backdrop
      const limits = isModal ? null : limitsOf(element), whole = isModal ? SCREEN : inSight.get(element);
      const box = limits ? intersect(whole, limits) : whole;
      if (box) boxes.set(element, { element, number, end: number, layer, ...box, blocks: false });
    }
    const ends = elements.map((_, number) => number);
    for (let number = elements.length - 1; number > 0; number--) {
      const outer = numbers.get(outerOf(elements[number]));
      ends[outer] = Math.max(ends[outer], ends[number]);
    }
    const cells = new Map([[LARGE, []]]);
    for (const box of boxes.values()) {
      box.end = ends[box.number];
      for (const cell of cellsOf(box)) (cells.get(cell) || cells.set(cell, []).get(cell)).push(box);
    }
    return { boxes, cells };
  });

  const overlap = (one, other) => one.left + SLACK < other.left + other.width && other.left + SLACK < one.left + one.width &&
    one.top + SLACK < other.top + other.height && other.top + SLACK < one.top + one.height;

  // The boxes that may lie over a box of an element; null if only hit tests tell, as for the shapes of a picture.
  const coversOf = (element, box) => {
    const { boxes, cells } = scan(document), own = boxes.get(element);
    if (!own || element.localName === "area" || element instanceof SVGElement && element.localName !== "svg") return null;
    const near = cellsOf(box), isOver = (other) => (other.number < own.number || other.number > own.end) && overlap(other, box) &&
      (other.layer !== own.layer && compare(other.layer.key, own.layer.key) || other.number - own.number) > 0;
    if (near[0] === LARGE) return Array.from(boxes.values()).filter(isOver);
    return Array.from(new Set([LARGE, ...near].flatMap((cell) => cells.get(cell) || []).filter(isOver)));
  };

  return Object.freeze({ coversOf, limitsOf });
})();
