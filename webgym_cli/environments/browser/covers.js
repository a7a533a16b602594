// Which boxes lie over which, from one pass: a hit test walks over the whole page, and is needed only where boxes overlap.
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

  return Object.freeze({ coversOf, limitsOf });
})();
