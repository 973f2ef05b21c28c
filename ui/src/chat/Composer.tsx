/** Where the user writes: text, files and pictures by drop or paste, and a slash for skills. */

import { useRef, useState } from "react";

import type { MessageIn } from "../api";
import { conversation, notify, send, stop, useApp } from "../state/app";

interface Attached {
  name: string;
  type: string;
  data: string; // base64
}

const MOST_BYTES = 10_000_000;

export function Composer() {
  const running = useApp((state) => Boolean(conversation(state).run));
  const [text, setText] = useState("");
  const [attached, setAttached] = useState<Attached[]>([]);
  const area = useRef<HTMLTextAreaElement>(null);
  const ready = text.trim() || attached.length;

  const submit = () => {
    if (!ready) return;
    const said = message(text, attached);
    setText("");
    setAttached([]);
    void send([said]);
  };
  const attach = async (files: Iterable<File>) => {
    for (const file of files) {
      if (file.size > MOST_BYTES) notify(`${file.name} is larger than 10 MB; put it into the workspace with the Files panel.`, "error");
      else {
        const data = await base64(file);
        setAttached((old) => [...old, { name: file.name, type: file.type || "application/octet-stream", data }]);
      }
    }
  };
  return (
    <form
      className="composer"
      onSubmit={(event) => { event.preventDefault(); submit(); }}
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => { event.preventDefault(); void attach(event.dataTransfer.files); }}
    >
      {attached.length > 0 && (
        <ul className="attached" aria-label="Attached">
          {attached.map((one, at) => <li key={at}>{one.name} <button type="button" className="plain" aria-label={`Remove ${one.name}`} onClick={() => setAttached((old) => old.filter((_, place) => place !== at))}>✕</button></li>)}
        </ul>
      )}
      <label className="visually-hidden" htmlFor="message">Message</label>
      <textarea
        id="message"
        ref={area}
        rows={Math.min(8, text.split("\n").length)}
        placeholder={running ? "Say something while it works" : "Ask for something"}
        value={text}
        onChange={(event) => setText(event.target.value)}
        onPaste={(event) => { if (event.clipboardData.files.length) { event.preventDefault(); void attach(event.clipboardData.files); } }}
        onKeyDown={(event) => { if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) { event.preventDefault(); submit(); } }}
      />
      <label className="plain attach">
        <span className="visually-hidden">Attach files</span><span aria-hidden="true">＋</span>
        <input type="file" multiple className="visually-hidden" onChange={(event) => { void attach(event.target.files ?? []); event.target.value = ""; }} />
      </label>
      {running && <button type="button" onClick={() => void stop()}>Stop</button>}
      <button className="main" disabled={!ready}>{running ? "Steer" : "Send"}</button>
    </form>
  );
}

function message(text: string, attached: Attached[]): MessageIn {
  if (!attached.length) return { role: "user", content: text };
  const parts = attached.map((one) => ({ type: one.type.startsWith("image/") ? ("image" as const) : ("file" as const), data: one.data, media_type: one.type, name: one.name }));
  return { role: "user", content: [...(text.trim() ? [{ type: "text" as const, text }] : []), ...parts] };
}

function base64(file: File): Promise<string> {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(String(reader.result).replace(/^[^,]*,/, ""));
    reader.onerror = () => failed(reader.error ?? new Error(`${file.name} cannot be read`));
    reader.readAsDataURL(file);
  });
}
