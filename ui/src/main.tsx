import "./theme.css";
import "./shell/shell.css";
import "./chat/chat.css";

import { createRoot } from "react-dom/client";

import { App } from "./App";
import { begin } from "./state/app";

void begin();
createRoot(document.getElementById("root")!).render(<App />);
