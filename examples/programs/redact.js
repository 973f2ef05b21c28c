#!/usr/bin/env node
// Takes mail addresses out of what tools say. It is started once and answers a line for a line.
const readline = require('node:readline');

if (process.argv[2] === 'hook') {
  console.log(JSON.stringify({ points: ['after_tool_use'], protocol: 'lines' }));
} else {
  readline.createInterface({ input: process.stdin }).on('line', (line) => {
    const { id, result } = JSON.parse(line);
    const output = (result?.output ?? '').replace(/[\w.+-]+@[\w-]+(\.[\w-]+)+/g, '[a mail address]');
    const changed = result && output !== result.output;
    console.log(JSON.stringify(changed ? { id, result: { output, error: result.error } } : { id }));
  });
}
