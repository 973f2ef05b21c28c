/** Code colours, in light and dark. */

import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { EditorView } from "@codemirror/view";
import { tags } from "@lezer/highlight";

const colours = HighlightStyle.define([
  {
    tag: [tags.keyword, tags.operatorKeyword, tags.modifier, tags.controlKeyword],
    color: "light-dark(#9a3c8c, #d9a0d2)",
  },
  { tag: [tags.string, tags.special(tags.string), tags.regexp], color: "light-dark(#2e6b33, #98cf9a)" },
  { tag: [tags.number, tags.bool, tags.null, tags.atom], color: "light-dark(#a1460b, #f0b27a)" },
  { tag: [tags.comment, tags.meta], color: "light-dark(#6b665d, #98938a)", fontStyle: "italic" },
  {
    tag: [tags.function(tags.variableName), tags.function(tags.propertyName), tags.labelName],
    color: "light-dark(#1a5fb4, #8ab4f8)",
  },
  { tag: [tags.typeName, tags.className, tags.namespace, tags.tagName], color: "light-dark(#1d6a72, #82cdd6)" },
  { tag: [tags.propertyName, tags.attributeName], color: "light-dark(#7a4f00, #dcc27d)" },
  { tag: [tags.heading], fontWeight: "700" },
  { tag: tags.strong, fontWeight: "700" },
  { tag: tags.emphasis, fontStyle: "italic" },
  { tag: [tags.link, tags.url], color: "var(--link)" },
  { tag: tags.invalid, color: "var(--bad)" },
]);

const theme = EditorView.theme({
  "&": { height: "100%", backgroundColor: "var(--raised)", color: "var(--ink)", fontSize: "13.5px" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55" },
  ".cm-content": { caretColor: "var(--ink)" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  ".cm-gutters": { backgroundColor: "var(--raised)", color: "var(--quiet)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "light-dark(rgb(0 0 0 / 4%), rgb(255 255 255 / 5%))" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "light-dark(#f6dcc2, #55402a)",
  },
  ".cm-panels": { backgroundColor: "var(--sunk)", color: "var(--ink)", borderColor: "var(--line)" },
  ".cm-panels input, .cm-panels button": {
    backgroundImage: "none",
    backgroundColor: "var(--raised)",
    color: "var(--ink)",
    border: "1px solid var(--line)",
    borderRadius: "6px",
  },
  ".cm-searchMatch": { backgroundColor: "light-dark(#fbe2a8, #5b4a12)" },
  ".cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--ink)", border: "1px solid var(--line)" },
  ".cm-changedLine": { backgroundColor: "light-dark(#e6f4ea, #17301f) !important" },
  ".cm-deletedChunk": { backgroundColor: "var(--bad-soft)" },
  ".cm-changedText": { background: "light-dark(#b9e3c6, #2b5c3c) !important" },
  ".cm-deletedChunk .cm-deletedText": { background: "light-dark(#f5c6c2, #6b2f2c) !important" },
  ".cm-collapsedLines:before, .cm-collapsedLines:after": { content: '"⋯" !important' },
  ".cm-collapsedLines": { background: "var(--sunk) !important", color: "var(--quiet)" },
});

export const look = [theme, syntaxHighlighting(colours)];
