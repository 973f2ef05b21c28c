import "./theme.css";
import "./shell/shell.css";
import "./chat/chat.css";

import { createRoot } from "react-dom/client";

import { App } from "./App";
import { watchFiles } from "./canvas/watch";
import { begin, keepUp } from "./state/session";

watchFiles();
keepUp();
void begin();
createRoot(document.getElementById("root")!).render(<App />);
