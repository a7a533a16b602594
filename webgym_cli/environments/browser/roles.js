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

  const matches = (element, selector) => Element.prototype.matches.call(element, selector);
  const editable = (element) => element.isContentEditable && !element.parentElement?.isContentEditable;

  // An attribute, or what a custom element has in its place in its internals, as `stand_ins.js` tells.
  const attributeOf = (element, name) => {
    let told = element.getAttribute(name);
    if (told !== null || !element.localName.includes("-")) return told;
    const hear = ({ detail }) => { told = detail; };
    element.addEventListener("webgym-told", hear);
    element.dispatchEvent(new CustomEvent("webgym-ask", { detail: name.replace("-", ""), composed: true }));
    element.removeEventListener("webgym-told", hear);
    return told;
  };

  const roleOf = (element) => {
    const told = (attributeOf(element, "role") || "").trim().toLowerCase().split(/\s+/)[0];
    if (told && told !== "presentation" && told !== "none") return told;
    const tag = element.localName;
    if (tag === "input" && /^(text|search)$/.test(element.type) && matches(element, "[aria-haspopup=listbox],[role=combobox] *")) return "combobox";
    if (tag === "input") return INPUT_ROLES[element.type] || (element.hasAttribute("list") ? "combobox" : "textbox");
    if (tag === "th" && !element.closest("thead") && element.parentElement?.querySelector(":scope > td")) return "rowheader";
    if (tag === "td" && element.closest("[role=grid],[role=treegrid]")) return "gridcell";
    if (tag === "select") return element.multiple || element.size > 1 ? "listbox" : "combobox";
    return editable(element) ? "textbox" : TAG_ROLES[tag] || "generic";
  };

  return Object.freeze({ attributeOf, editable, matches, roleOf });
})();
