/**
 * Styles of libraries under a policy without inline styles.
 *
 * xterm.js writes `style` elements, and it and CodeMirror write `style` attributes. The policy refuses both, and allows
 * the same rules as constructed style sheets and as properties of `element.style`. So both are turned into these.
 */
export function constructStyles(): void {
  const create = document.createElement.bind(document) as (tag: string, options?: ElementCreationOptions) => HTMLElement;
  const replaced = (tag: string, options?: ElementCreationOptions) =>
    tag === "style" ? styleElement(create("span")) : create(tag, options);
  document.createElement = replaced as typeof document.createElement;

  const setAttribute = Element.prototype.setAttribute;
  Element.prototype.setAttribute = function (this: Element, name, value) {
    if (name === "style" && "style" in this) (this as HTMLElement).style.cssText = value;
    else setAttribute.call(this, name, value);
  };
}

/** An element whose text is in force as a constructed style sheet, until it is removed. */
function styleElement(element: HTMLElement): HTMLElement {
  element.hidden = true;
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  Object.defineProperty(element, "textContent", {
    get: () => "",
    set: (text: string) => sheet.replaceSync(text),
  });
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((other) => other !== sheet);
    Element.prototype.remove.call(element);
  };
  return element;
}
