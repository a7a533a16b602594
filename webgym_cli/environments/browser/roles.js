// Roles of elements.
webgym.roles = (() => {
  const INPUT_ROLES = { button: "button", submit: "button", reset: "button", image: "button", checkbox: "checkbox",
    radio: "radio", range: "slider", number: "spinbutton", search: "searchbox", date: "date", time: "time",
    month: "month", week: "week", "datetime-local": "datetime", color: "color", file: "file", password: "password" };
  const TAG_ROLES = { a: "link", area: "link", summary: "button", textarea: "textbox", li: "listitem", tr: "row",
    td: "cell", th: "columnheader", main: "main", aside: "complementary", dialog: "dialog", fieldset: "group", img: "image", svg: "image", article: "article", nav: "navigation", h1: "heading",
    h2: "heading", h3: "heading", h4: "heading", h5: "heading", h6: "heading", ul: "list", ol: "list", p: "paragraph",
    button: "button", option: "option", table: "table", details: "group", canvas: "canvas", video: "video",
    audio: "audio", iframe: "iframe", object: "object", embed: "embed" };

  // Controls of HTML, and roles of texts and containers that components give to them, such as an item that is a link.
  const NATIVE = "a[href],button,input,select,textarea,summary";
  const TEXTS = /^(alert|status|log|list|listitem|group|heading|img|image|article|document|note|region|application)$/;

  const matches = (element, selector) => Element.prototype.matches.call(element, selector);
  const editable = (element) => element.isContentEditable && !element.parentElement?.isContentEditable;

  // Within `atOnce` no script of the page runs: what is computed then for an element holds until its end.
  let turn = 0, depth = 0;
  const atOnce = (work) => {
    [turn, depth] = [turn + 1, depth + 1];
    try { return work(); } finally { depth--; }
  };
  const memo = (compute) => {
    let known = new Map(), of = turn;
    return (key) => {
      if (!depth) return compute(key);
      if (of !== turn) [known, of] = [new Map(), turn];
      if (!known.has(key)) known.set(key, compute(key));
      return known.get(key);
    };
  };

  // What `stand_ins.js` tells of the internals of a custom element, or the names of all elements with internals. The event
  // is one that hands on an element, also out of a closed shadow root.
  const ask = (document, submitter) => {
    let told = {};
    const hear = ({ detail }) => { told = detail || {}; };
    document.addEventListener("webgym-told", hear);
    document.dispatchEvent(new SubmitEvent("webgym-ask", { submitter }));
    document.removeEventListener("webgym-told", hear);
    return told;
  };
  const namesOf = memo((document) => ask(document, null)), internalsOf = memo((element) => ask(element.ownerDocument, element));

  // An attribute, or what a custom element has in its place in its internals.
  const attributeOf = (element, name) => {
    const own = element.getAttribute(name), tag = element.localName;
    if (own !== null || !tag.includes("-") || !namesOf(element.ownerDocument)[tag]) return own;
    const told = internalsOf(element)[name.replace("-", "")];
    return typeof told === "string" && told || null;
  };

  // A header in a row of data: before its data, or first, unless the row is a table's first and has several.
  const isRowHeader = (head) => {
    const scope = head.scope, row = head.parentElement, isTop = matches(row, ":first-child") && row.querySelectorAll(":scope>th").length > 1;
    if (scope || head.closest("thead")) return scope.startsWith("row");
    const isBefore = head.cellIndex === 0 || head.nextElementSibling?.localName === "td";
    return isBefore && !isTop && Boolean(row.querySelector(":scope>td"));
  };

  const roleOf = (element) => {
    const told = (attributeOf(element, "role") || "").trim().toLowerCase().split(/\s+/)[0];
    if (told && told !== "presentation" && told !== "none" && !(TEXTS.test(told) && matches(element, NATIVE))) return told;
    const tag = element.localName;
    if (tag === "input" && /^(text|search)$/.test(element.type) && matches(element, "[aria-haspopup=listbox],[role=combobox] *")) return "combobox";
    if (tag === "input") return INPUT_ROLES[element.type] || (element.hasAttribute("list") ? "combobox" : "textbox");
    if (tag === "th" && element.parentElement && isRowHeader(element)) return "rowheader";
    if (tag === "td" && element.closest("[role=grid],[role=treegrid]")) return "gridcell";
    if (tag === "select") return element.multiple || element.size > 1 ? "listbox" : "combobox";
    return editable(element) ? "textbox" : TAG_ROLES[tag] || "generic";
  };

  return Object.freeze({ atOnce, attributeOf, editable, matches, memo, roleOf });
})();
