import { css } from "@codemirror/lang-css";
import { html } from "@codemirror/lang-html";
import { javascript } from "@codemirror/lang-javascript";
import { json } from "@codemirror/lang-json";
import { markdown } from "@codemirror/lang-markdown";
import { python } from "@codemirror/lang-python";
import { HighlightStyle, type LanguageSupport, syntaxHighlighting } from "@codemirror/language";
import { EditorView, keymap } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { basicSetup } from "codemirror";

const LANGUAGES: Record<string, () => LanguageSupport> = {
  css, html, json, markdown, python,
  md: markdown, py: python, ipynb: json, htm: html,
  js: javascript, mjs: javascript, jsx: () => javascript({ jsx: true }),
  ts: () => javascript({ typescript: true }), tsx: () => javascript({ typescript: true, jsx: true }),
};

const COLOURS = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword], color: "var(--code-keyword)" },
  { tag: [tags.string, tags.regexp], color: "var(--code-string)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--code-number)" },
  { tag: [tags.comment], color: "var(--dim)" },
  { tag: [tags.function(tags.variableName), tags.propertyName, tags.tagName], color: "var(--code-name)" },
]);

const THEME = EditorView.theme({
  "&": { height: "100%", color: "var(--text)", backgroundColor: "var(--surface)", fontSize: "13px" },
  ".cm-content": { fontFamily: "var(--mono)", caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--raised)", color: "var(--dim)", borderRight: "1px solid var(--line)" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--hover)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--select) !important" },
  ".cm-panels": { backgroundColor: "var(--raised)", color: "var(--text)" },
});

/** Characters that enclose a selection instead of replacing it. */
const ENCLOSING = "()[]{}'\"`";

/** Replaces a selection by typed text. Left to itself, Chromium copies the highlighting as an inline style, which the policy
 * of the page refuses and reports. */
const REPLACED = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const { inputType, data, isComposing } = event;
    const replaces = inputType === "insertText" && data && !isComposing && !view.state.selection.main.empty;
    if (!replaces || ENCLOSING.includes(data)) return false;
    event.preventDefault();
    view.dispatch(view.state.update(view.state.replaceSelection(data), { userEvent: "input.type", scrollIntoView: true }));
    return true;
  },
});

interface Acts {
  changed: () => void;
  save: () => void;
}

/** A text with highlighting. It is in a shadow root, where CodeMirror constructs its style sheets: the policy of the page
 * allows no inline ones. */
export class Editor {
  private readonly view: EditorView;

  constructor(box: HTMLElement, name: string, text: string, acts: Acts) {
    const host = document.createElement("div");
    host.className = "editor-host";
    box.append(host);
    const root = host.attachShadow({ mode: "open" });
    const parent = document.createElement("div");
    parent.style.height = "100%";
    root.append(parent);
    const language = LANGUAGES[name.split(".").at(-1)?.toLowerCase() ?? ""];
    this.view = new EditorView({
      doc: text,
      root,
      parent,
      extensions: [
        keymap.of([{ key: "Mod-s", preventDefault: true, run: () => (acts.save(), true) }]),
        REPLACED,
        basicSetup,
        THEME,
        syntaxHighlighting(COLOURS),
        EditorView.contentAttributes.of({ "aria-label": name }),
        EditorView.updateListener.of((update) => update.docChanged && acts.changed()),
        ...(language ? [language()] : []),
      ],
    });
  }

  /** Puts another text into its place, which is a change as any other. */
  replace(text: string): void {
    if (text === this.text()) return;
    this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: text } });
  }

  text(): string {
    return this.view.state.doc.toString();
  }

  dispose(): void {
    this.view.destroy();
  }
}
