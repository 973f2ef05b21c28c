import "./theme.css";

import { createRoot } from "react-dom/client";

import { App } from "./App";
import { watchDrafts, watchFiles } from "./canvas/watch";
import { watchStyles } from "./parts/lazyPart";
import { patchApp } from "./state/app";
import { storedNotifies, watchNotifications } from "./state/notifications";
import { startSession, startUpdates } from "./state/session";

watchStyles();
const secret = new URLSearchParams(location.hash.slice(1)).get("share");
const root = createRoot(document.getElementById("root")!);
if (secret) void import("./share/Shared").then(({ Shared }) => root.render(<Shared secret={secret} />));
else startPage();

function startPage(): void {
  watchFiles();
  watchDrafts();
  watchNotifications();
  patchApp({ notifies: storedNotifies() });
  startUpdates();
  void startSession();
  root.render(<App />);
}
addEventListener("hashchange", () => location.hash.startsWith("#share=") && location.reload()); // a link pasted into an open page
