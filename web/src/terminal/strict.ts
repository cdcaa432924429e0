/**
 * A document for xterm.js under a policy without inline styles.
 *
 * xterm.js writes `style` elements and `style` attributes, which the policy refuses. The same rules
 * are allowed as constructed style sheets and as properties of `element.style`.
 */
export function strictDocument(): Document {
  return new Proxy(document, {
    get(target, name) {
      if (name === "createElement") return create;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? (value as (...args: unknown[]) => unknown).bind(target) : value;
    },
  });
}

function create(tag: string): HTMLElement {
  if (tag === "style") return styleElement();
  const element = document.createElement(tag);
  const plain = element.setAttribute.bind(element);
  element.setAttribute = (name, value) => {
    if (name === "style") element.style.cssText = value;
    else plain(name, value);
  };
  return element;
}

/** An element whose text is in force as a constructed style sheet, until it is removed. */
function styleElement(): HTMLElement {
  const element = document.createElement("span");
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
