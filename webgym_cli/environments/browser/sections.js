// Date and time fields of editable sections (month, day, year), which may be transparent until they have the focus, and
// text fields that hold a mask such as `dd.MM.yyyy` once they have it, whose keys go to one part after the other.
webgym.sections = (() => {
  const { matches, oneLine, parentOf, rootOf, treeOf } = webgym.names;
  const SECTION = "[role=spinbutton][contenteditable]";
  const KINDS = /year|month|day|hour|minute|second/i;
  const LETTERS = { Y: "year", y: "year", M: "month", D: "day", d: "day", H: "hour", h: "hour", m: "minute", s: "second" };
  const MASK = /^(?:([yYMDdHhms])\1*(?:[^\p{L}\p{N}]+|$)){2,}$/u;
  const ISO = /^(\d{4})-(\d\d?)-(\d\d?)(?:[T ](\d\d?):(\d\d?)(?::(\d\d?))?)?$/;
  const ORDER = ["year", "month", "day", "hour", "minute", "second"];

  const isSection = (element) => Boolean(element) && matches(element, SECTION);
  // In a component they are in its root.
  const within = (element) => [element, ...(rootOf(element) || element).querySelectorAll(SECTION)].filter(isSection);
  // The group of a range contains two fields.
  const groupOf = (section) => {
    let own = parentOf(section); // the host, if it is outermost in a shadow root
    while (within(own).length < 2 && own.parentElement && !matches(own, "[role=group]")) own = own.parentElement;
    const group = section.closest("[role=group]");
    return group && within(group).length === within(own).length ? group : own;
  };
  const sectionsOf = (section) => (isSection(section) ? within(groupOf(section)) : []);

  const kindOf = (section) => (section.getAttribute("aria-label") || "").match(KINDS)?.[0].toLowerCase() ||
    LETTERS[section.textContent.trim()[0]];

  // Masks write months and minutes with an m of either case: it is a minute behind hours or before seconds.
  const meantBy = (kinds, at) => (!/^(month|minute)$/.test(kinds[at]) ? kinds[at] :
    kinds[at - 1] === "hour" || kinds[at + 1] === "second" ? "minute" : "month");

  // The text of each section: of an ISO date by the sections' kinds where one is known, else in the text's own order; null
  // if they don't fit.
  const partsOf = (text, kinds) => {
    const iso = text.trim().match(ISO), parts = text.match(/[\p{L}\p{N}]+/gu) || [];
    const ordered = iso && kinds.some(Boolean) ? kinds.map((_, at) => iso[ORDER.indexOf(meantBy(kinds, at)) + 1]) : null;
    if (ordered) return ordered.every((part, at) => part && kinds[at]) ? ordered : null;
    return parts.length === kinds.length ? parts : null;
  };

  const fit = (part, { length }, kind) => part.padStart(length, "0").slice(kind === "year" && length === 2 ? -2 : 0);

  // What a field that shows its mask will show with a text, "" for an ISO date that doesn't fit; null for any other field.
  const maskedBy = (text, { value, placeholder }) => {
    const letters = value && value === placeholder && MASK.test(value) ? value.match(/\p{L}+/gu) : [];
    const kinds = letters.map(([letter]) => LETTERS[letter]), parts = letters.length ? partsOf(text, kinds) : null;
    if (letters.length && !parts && ISO.test(text.trim())) return "";
    if (!parts?.every((part) => /^\d+$/.test(part))) return null;
    return value.replace(/\p{L}+/gu, (part) => fit(parts.shift(), part, kinds.shift()));
  };

  const holds = (section, part) => {
    const has = section.textContent.replace(/[^\p{L}\p{N}]/gu, "");
    return /^\d+$/.test(part) && /^\d+$/.test(has) ? Number(has) === Number(part) : has.toLowerCase().startsWith(part.toLowerCase());
  };

  // Whether a field is a box for one character of a code, which passes the focus on: in a row of as many equal ones.
  const isCodeBox = (field, text) => {
    const own = field.getBoundingClientRect(), inputs = Array.from(treeOf(field).querySelectorAll("input"));
    const isEqual = (one) => ["top", "width", "height"].every((side) => one.getBoundingClientRect()[side] === own[side]) && one.value.length < 2;
    return field.localName === "input" && text.length > 1 &&
      (field.maxLength === 1 || own.width < 1.5 * own.height && inputs.filter(isEqual).length >= Math.max(text.length, 3));
  };

  // The sections with what stands between them.
  const textOf = (section) => {
    const range = section.ownerDocument.createRange(), sections = sectionsOf(section);
    range.setStartBefore(sections[0]);
    range.setEndAfter(sections.at(-1));
    return oneLine(range.toString());
  };

  const focus = (section) => {
    section.focus();
    section.ownerDocument.defaultView.getSelection().selectAllChildren(section);
    return {};
  };

  return Object.freeze({ isCodeBox, isSection, groupOf, sectionsOf, kindOf, partsOf, maskedBy, holds, focus, textOf });
})();
