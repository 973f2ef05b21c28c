import "./theme.css";

import { createRoot } from "react-dom/client";

import { App } from "./App";
import { watchDrafts, watchFiles } from "./canvas/watch";
import { startSession, startUpdates } from "./state/session";

watchFiles();
watchDrafts();
startUpdates();
void startSession();
createRoot(document.getElementById("root")!).render(<App />);
