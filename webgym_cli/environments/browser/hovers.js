// What the mouse over an element shows: its cursor, and what style sheets change then.
webgym.hovers = (() => {
  const { inside, matches, memo, styleOf, treeOf } = webgym.names;
  // Cursors that mark an element as clickable, draggable or connectable.
  const CURSORS = /^(pointer|grab|move|crosshair)$/;

  const cursorOf = memo((element) => styleOf(element).cursor.match(CURSORS)?.[0]);

  // Whether the style sheets change an element on hover (1), or its cursor too (2), which shows users a control.
  const hovered = new WeakMap();
  const rulesOf = (sheet) => { try { return sheet.cssRules; } catch { return []; } }; // cross-origin style sheet
  const SHOWS = /display|visibility|opacity|height|clip|transform|left|right|top|scale/;
  const hoverSelectors = function* (rules) {
    for (const rule of rules) {
      if (rule.selectorText?.includes(":hover")) {
        for (const selector of rule.selectorText.split(/,(?![^(]*\))/)) {
          const [, over, rest] = selector.trim().match(/^((?:[^()]|\([^()]*\))+?)(?<![\s>+~]):hover(?=$|[\s.:[>+~])(.*)$/) || [];
          const isPart = /[\s>+~]/.test(rest) && SHOWS.test(rule.style.cssText) && CSS.supports(`selector(:scope${rest})`);
          if (over) yield { over, points: CURSORS.test(rule.style.cursor), part: isPart ? `:scope${rest}` : "" };
        }
      }
      if (rule.cssRules?.length) yield* hoverSelectors(rule.cssRules);
    }
  };
  // Of each style sheet, read again when it has other rules.
  const selectorsOf = (sheet) => {
    const rules = rulesOf(sheet);
    if (hovered.get(sheet)?.count !== rules.length) hovered.set(sheet, { count: rules.length, found: [...hoverSelectors(rules)] });
    return hovered.get(sheet).found;
  };
  const hoverIndex = memo((root) => {
    const found = [...(root.styleSheets || []), ...(root.adoptedStyleSheets || [])].flatMap(selectorsOf);
    // a selector list that ignores invalid selectors
    const anyOf = (some) => `:is(${[...new Set(some.map(({ over }) => over))].join(",")})`;
    const own = found.filter(({ over }) => !/^(\*|[a-z]+)$/i.test(over)), showing = found.filter(({ part }) => part);
    return { any: anyOf(own), sure: anyOf(own.filter(({ points }) => points)), showing, shows: anyOf(showing) };
  });
  const hovers = memo((element) => {
    const { any, sure } = hoverIndex(treeOf(element));
    return matches(element, any) ? (matches(element, sure) ? 2 : 1) : 0;
  });

  // The parts that a selector finds from an element on: within it, or in what comes after it.
  const shownBy = (element, selector) => {
    const [, step, next, rest] = selector.match(/^:scope\s*([+~])\s*((?:[^\s>+~()]|\([^()]*\))+)(.*)$/) || [];
    if (!step) return inside(element, selector);
    const parts = [];
    for (let at = element.nextElementSibling; at; at = step === "~" && at.nextElementSibling) {
      if (matches(at, next)) parts.push(...(rest.trim() ? shownBy(at, `:scope${rest}`) : [at]));
    }
    return parts;
  };

  return Object.freeze({ cursorOf, hoverIndex, hovers, shownBy });
})();
