// Observation of a page, called from Python: `look` lists the interactive elements in the viewport, `unlisted` counts those
// beyond its limit, `locate` returns the current click point of one of them, `marked` the elements themselves.
webgym.observe = (() => {
  const { atOnce, inside, matches, memo, styleOf, roleOf, nameOf, editable, isUnused, labelBefore, parentOf, wordsIn } = webgym.names;
  const { contextsOf, valueOf, statesOf } = webgym.values;
  const { groupOf, isSection, sectionsOf, textOf: sectionText } = webgym.sections;
  const { HOVERABLE, interest, isDrawn, isLayer, isSurface, isVeil, isZone, listens, remembered, reveals } = webgym.kinds;
  const { allOf, hearKept, hitAt, rectOf } = webgym.frames;
  const { area, boxOf, isSmall, place, pointOf, pointWithin, reaches, surfaceOf, visiblePart } = webgym.geometry;
  const { FIELDS, TWINS, withoutRepeats } = webgym.repeats;
  const BEHIND = "button[aria-haspopup],[role=tab]"; // controls that a component may have behind its face
  // Units that contain more than a field, even if they have only one.
  const PARTS = "tr,td,th,[role=columnheader],li,form,fieldset,[role=row],[role=gridcell],[role=option],[role=toolbar],[role=tree],[role=treeitem],[role^=menuitem]";
  // Maximum number of levels from a field to its wrapper, and the wrapper's maximum height.
  const WRAPPERS = 6, TALLEST = 120;
  const HIDDEN_INPUTS = /^(checkbox|radio|range|file)$/;
  const EDITORS = "[role=code],[role=textbox],.CodeMirror,.ace_editor,[class*=editor]";
  // Maximum share of the viewport of an element that is listed only because of a listener on or above it.
  const MOST_OF_SCREEN = 0.25, MOST_OF_ZONE = 0.5, MOST_FOUND = 2000, THIN = 8;
  let marks = [], left = 0;

  // A wrapper that stands for the one field in it: what is clicked there, else what has a border or background.
  const frameOf = (element, seen) => {
    const labels = Array.from(element.labels || []), isPressed = seen && element.localName !== "input" && listens(element);
    let drawn = null, clicked = null;
    const sections = sectionsOf(element), labelsIn = (at) => labels.filter((label) => label !== at && at.contains(label));
    const isClear = !seen && element.tabIndex >= 0 && Boolean(place(element, true)); // its label or picture lies in its place
    for (let at = parentOf(element), level = 0; at && level < WRAPPERS && at.localName !== "body"; at = parentOf(at), level++) {
      if (matches(at, PARTS) || labelsIn(at).some((label) => !isClear || rectOf(label).width > 1)) break; // one of a pixel is for readers of the screen
      if (inside(at, FIELDS).some((other) => other !== element && !isUnused(other) && !sections.includes(other))) break;
      const stands = place(at);
      if (!stands || isSmall(stands) || stands.box.height > TALLEST) continue;
      // a thing that is placed freely, such as a flow editor's node, is more than its field; a list may take its own clicks
      if (interest(at) && !(seen && styleOf(at).position === "absolute") && !(isPressed && interest(at) === 1)) clicked = stands;
      else if (!drawn && (isDrawn(at) || sections.length || isClear && (at.querySelector("svg,img") || !labelsIn(at).length && wordsIn(at).trim()))) drawn = stands;
    }
    if (!seen || isSmall(seen)) return clicked || drawn;
    return clicked && area(seen) * 2 < area(clicked) && { ...clicked, point: seen.point, aim: element };
  };

  // The visible element to click: a hidden input's label, a transparent field's wrapper, the editor of a code editor's field.
  const facing = (element) => {
    const isTicked = element.localName === "input" && HIDDEN_INPUTS.test(element.type);
    // what a form sends for a component's own control
    if (isTicked && isUnused(element) && [element.previousElementSibling, element.nextElementSibling].some((one) => one && matches(one, TWINS))) return null;
    const isClear = isTicked || element.localName === "select" && element.tabIndex >= 0;
    const seen = place(element), hidden = isClear && !seen && place(element, true);
    if ((isTicked || matches(element, "[role=checkbox],[role=radio],[role=switch]")) && seen && !isSmall(seen) && styleOf(element).pointerEvents !== "none") return seen;
    const labels = isTicked || matches(element, TWINS) ? Array.from(element.labels || []) : [];
    // a button that is a label with a hidden box or field in it; a label of several parts has its own picture of the box
    const around = labels.find((label) => label.contains(element));
    if (around && place(around)) return place(around);
    if (hidden && !isSmall(hidden)) return hidden;
    if ((matches(element, FIELDS) || !seen && matches(element, BEHIND)) && !isUnused(element)) {
      const wrapper = frameOf(element, seen);
      if (wrapper) return wrapper;
    }
    const handles = element.type === "range" && !seen ? [element.nextElementSibling, element.parentElement] : [];
    for (const part of [...labels, ...handles]) if (part && place(part)) return place(part);
    const writes = matches(element, "textarea,[role=textbox]") || editable(element);
    const editor = writes && (!seen || isSmall(seen)) && parentOf(element)?.closest?.(EDITORS);
    return (editor && place(editor)) || seen || hidden || element.localName === "canvas" && surfaceOf(element);
  };

  const seen = (element, sure) => {
    const find = facing(element);
    if (!find) return null;
    const share = area(find) / (innerWidth * innerHeight);
    // A listener on a large element is delegation; the element itself is no target.
    const least = isZone(element) ? MOST_OF_ZONE : MOST_OF_SCREEN; // a board may have two columns
    const most = sure === 2 || remembered(element) || matches(element, "canvas,svg") ? 0.9 : least;
    const isLarge = share > most, surface = (isLarge || sure < 2) && sure < 3 && isSurface(element);
    if (sure < 3 && isLarge && !surface) return null;
    // a resize handle between columns or panes, the edge of a cell
    if (sure <= 1 && Math.min(find.box.width, find.box.height) < THIN && Math.max(find.box.width, find.box.height) > 2 * THIN) return null;
    if (sure === 1 && !surface && !remembered(element) && (isVeil(element) || isLayer(element) || nameOf(element).endsWith("…"))) return null;
    return { element, sure, isZone: isZone(element), isSurface: surface, reveals: reveals(element), ...find };
  };

  const isOverlaid = memo((element) => /^(fixed|sticky)$/.test(styleOf(element).position) ||
    matches(element, "dialog,[aria-modal=true],[popover]") || Boolean(parentOf(element)) && isOverlaid(parentOf(element)));

  // If not all elements can be listed: overlays first, then by confidence, in document order.
  const foremost = (kept, limit) => {
    const rank = ({ element, sure }) => (isOverlaid(element) ? 9 : sure);
    const best = new Set(kept.toSorted((one, other) => rank(other) - rank(one)).slice(0, limit));
    return kept.filter((find) => best.has(find));
  };

  const isLate = (find) => find.sure < 1 || find.isZone || find.isSurface; // comes after all else

  // Numbers by which two looks agree on an element, whatever its name and place are by then.
  let numbers = new WeakMap(), numbered = 0;
  const numberOf = (element) => {
    if (!numbers.has(element)) numbers.set(element, numbered++);
    return numbers.get(element);
  };

  const look = ({ limit, detail }) => atOnce(() => {
    const found = new Map();
    hearKept();
    for (const element of allOf(document)) {
      if (found.size >= MOST_FOUND) break;
      // A form is not interactive, and its fields' names can shadow its methods (<input name="matches">).
      if (matches(element, "form")) continue;
      const rect = rectOf(element);
      if (!rect.width && !element.firstChild && !/^(input|area)$/.test(element.localName)) continue; // an empty box
      const far = element.ownerDocument === document && rect.height > 0 &&
        (rect.top > innerHeight || rect.bottom < 0) && element.localName !== "input";
      const sure = far ? 0 : interest(element);
      const find = sure && seen(element, sure);
      if (!find) continue;
      if (isSection(element) && find.face !== element) { // the sections are one field until they are seen
        [find.element, find.value] = [groupOf(element), sectionText(element)];
        // the label of the component around them, else what the first section says after its own name: "Month, Due"
        const name = labelBefore(find.element) || nameOf(element).replace(/^[^,]+, */, "");
        if (!matches(find.element, "[role=group]")) find.told = { role: "group", name };
      }
      if (!found.has(find.element) || find.value && !found.get(find.element).value) found.set(find.element, find);
    }
    const all = withoutRepeats(Array.from(found.values())), kept = foremost(all, limit);
    left = all.length - kept.length;
    kept.sort((one, other) => isLate(one) - isLate(other));
    const groupsIn = (element) => (matches(element, "[role=treeitem]") ? inside(element, "[role=group]") : []); // its items
    marks = kept.map(({ element, face, aim }) => ({ element, face: aim || face, within: groupsIn(element) }));
    const index = new Map(kept.flatMap(({ element, face }, id) => [[face, id], [element, id]]));
    for (const [id, { element, face }] of kept.entries()) {
      let above = parentOf(element);
      while (above && (index.get(above) ?? id) === id) above = parentOf(above); // a face may be around its own element
      // nothing happens beside the shapes of a drawn group that does not listen itself, as in flow editors
      if (above && !(above.ownerSVGElement && !listens(above))) marks[index.get(above)].within.push(face);
    }
    for (const [id, { face, within }] of marks.entries()) {
      if (within.length && !kept[id].aim) kept[id].point = pointOf(face, kept[id].box, within);
    }
    const contexts = new Map();
    const equals = Map.groupBy(kept.map(({ element }) => element), (element) => `${roleOf(element)} ${nameOf(element)}`);
    for (const group of equals.values()) {
      if (group.length > 1) contextsOf(group).forEach((context, at) => contexts.set(group[at], context));
    }
    return kept.map((find, id) => {
      const { element, face, point } = find, context = contexts.get(element) || [], box = visiblePart(find);
      const states = Array.from(new Set([...statesOf(element), ...(find.reveals || find.sure === HOVERABLE ? ["shows more on hover"] : []), ...context]));
      const told = { id, role: roleOf(element), name: nameOf(element), value: find.value ?? valueOf(element, face), states,
        node: numberOf(element), point, box: [box.left, box.top, box.width, box.height].map((side) => Math.round(side * 100) / 100), ...find.told };
      if (detail) told.detail = { ...element.dataset, class: element.getAttribute("class") || "", id: element.id, tag: element.localName, typed: element.value ?? "" };
      return told;
    });
  });

  // The click point of a mark, or the point at a position (0 to 1000) within its visible box, then those the mouse passes.
  const locate = ([id, position, path = []]) => {
    if (!marks[id]) return { count: marks.length };
    const { face, within } = marks[id];
    if (!face.isConnected) return { error: "is no longer on the page" };
    const find = () => atOnce(() => {
      const box = boxOf(face), point = box && pointOf(face, box, within);
      if (!point || !position && !path.length) return point && [point];
      const part = visiblePart({ face, box, point }), to = position ? pointWithin(part, position) : point;
      return !position || reaches(face, hitAt(...to)) ? [to, ...path.map((at) => pointWithin(part, at))] : null;
    });
    let points = find();
    if (!points) {
      face.scrollIntoView({ block: "center", inline: "nearest", behavior: "instant" });
      points = find();
    }
    return points ? { points } : { error: `is covered or out of reach${position ? " at that position" : ""}` };
  };

  // A blinking caret would make two screenshots of the same page differ.
  const sheet = new CSSStyleSheet();
  sheet.replaceSync("* { caret-color: transparent !important; }");
  document.adoptedStyleSheets.push(sheet);

  return Object.freeze({ look, locate, unlisted: () => left, marked: () => marks.map(({ element }) => element) });
})();
