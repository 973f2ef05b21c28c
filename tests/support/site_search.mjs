// Answers queries with the search worker of the site's theme, as the search box of a reader's browser does.
//
//   node site_search.mjs SITE < queries.json      prints, for each query, the paths of the pages that are found
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { runInThisContext } from 'node:vm'

const [SETUP, QUERY] = [0, 2] // types of messages to the worker
const site = process.argv[2]
const workers = join(site, 'assets/javascripts/workers')
const worker = join(workers, readdirSync(workers).find((name) => /^search\..*\.js$/.test(name)))

let receive
let reply
globalThis.self = globalThis
globalThis.addEventListener = (_, listener) => (receive = listener)
globalThis.postMessage = (message) => reply(message)
runInThisContext(readFileSync(worker, 'utf8'))

function send(type, data) {
  return new Promise((resolve) => {
    reply = resolve
    receive({ data: { type, data } })
  })
}

const index = JSON.parse(readFileSync(join(site, 'search/search_index.json'), 'utf8'))
await send(SETUP, { ...index, options: { suggest: false } })
const found = {}
for (const query of JSON.parse(readFileSync(0, 'utf8'))) {
  const { data } = await send(QUERY, query)
  found[query] = data.items.map((sections) => sections[0].location.split('#')[0])
}
console.log(JSON.stringify(found))
