// The API as a page, made of /openapi.json. All texts are put in as text.

function made(name, text, ...children) {
  const node = document.createElement(name)
  if (text) node.textContent = text
  node.append(...children)
  return node
}

function operation(path, method, about) {
  const summary = made('summary', '', made('code', `${method.toUpperCase()} ${path}`), ` (${about['x-role']}) ${about.description ?? about.summary ?? ''}`)
  const parts = [summary]
  const parameters = about.parameters ?? []
  if (parameters.length) {
    const rows = parameters.map((one) => made('tr', '', made('td', one.name), made('td', one.in), made('td', one.description ?? one.schema?.description ?? '')))
    parts.push(made('table', '', ...rows))
  }
  for (const [type, body] of Object.entries(about.requestBody?.content ?? {})) {
    parts.push(made('p', `takes ${type}`), made('pre', JSON.stringify(body.schema, null, 2)))
  }
  for (const [status, answer] of Object.entries(about.responses)) {
    if (status.endsWith('XX')) continue
    for (const [type, body] of Object.entries(answer.content ?? {})) {
      parts.push(made('p', `${status}: ${type}`), made('pre', JSON.stringify(body.schema, null, 2)))
    }
  }
  return made('details', '', ...parts)
}

const answer = await fetch('/openapi.json')
const page = document.getElementById('api')
if (answer.ok) {
  const api = await answer.json()
  page.append(made('h1', `${api.info.title} ${api.info.version}`))
  for (const [path, methods] of Object.entries(api.paths).sort()) {
    for (const [method, about] of Object.entries(methods)) page.append(operation(path, method, about))
  }
  page.append(made('h2', 'Shapes'))
  for (const [name, schema] of Object.entries(api.components.schemas).sort()) {
    page.append(made('details', '', made('summary', name), made('pre', JSON.stringify(schema, null, 2))))
  }
} else {
  page.append(made('p', 'Sign in first.'))
}
