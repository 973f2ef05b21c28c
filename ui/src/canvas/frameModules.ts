/** The modules that a component on the canvas can import. Built as a script of its own, which runs in the frame. */

import * as React from "react";
import * as ReactDom from "react-dom";
import * as ReactDomClient from "react-dom/client";
import * as JsxRuntime from "react/jsx-runtime";

Object.assign(globalThis, {
  wickModules: {
    react: React,
    "react-dom": ReactDom,
    "react-dom/client": ReactDomClient,
    "react/jsx-runtime": JsxRuntime,
  },
});
