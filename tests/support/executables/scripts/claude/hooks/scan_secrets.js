// Refuses to write files that have an access key in them.
let text = "";
process.stdin.on("data", (chunk) => (text += chunk));
process.stdin.on("end", () => {
  const { tool_input: input } = JSON.parse(text);
  const written = [input.content, input.new_string].filter(Boolean).join("\n");
  if (/\bAKIA[0-9A-Z]{16}\b/.test(written)) {
    console.error("there is an access key in this file; read it from the environment");
    process.exit(2);
  }
});
